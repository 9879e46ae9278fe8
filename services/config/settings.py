"""Settings of the services: flags, then PENSTOCK_* variables, then a TOML file, then defaults.

Each setting is one field below; ``--help``, the table in docs/operations.md and the checks are
made from these fields. A field ``flush_mode`` is the flag ``--flush-mode``, the variable
``PENSTOCK_FLUSH_MODE`` and the TOML key ``flush_mode``. Sizes are bytes and may be written 64MiB.
``services.config.flags`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ByteSize, Field, field_validator, model_validator

from penstock.addresses import (
    DEFAULT_GATEWAY,
    DEFAULT_INDEXER,
    DEFAULT_READER,
    DEFAULT_WRITER,
)
from services import memory
from services.config.messaging import GatewayPlaceSettings, MessagingSettings, TlsSettings
from services.config.process import (
    DirectorySettings,
    ListenSettings,
    ProcessSettings,
    check_address,
)
from services.config.retention import RetentionSettings
from services.config.transactions import TransactionSettings
from storage.config import FlushMode, LeaseConfig, StoreConfig

WARM_SHARE: Final = 8  # of the memory, one part for page cache filled ahead of the appends
DEFAULT_LISTEN: Final[Mapping[str, str]] = {
    "writer": DEFAULT_WRITER,
    "reader": DEFAULT_READER,
    "indexer": DEFAULT_INDEXER,
    "gateway": DEFAULT_GATEWAY,
}

UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_ENGINE: Final = StoreConfig()
_LEASES: Final = LeaseConfig()
ScrubInterval = Annotated[
    int,
    Field(
        ge=0,
        description="Time between two readings of all of the store in search of damage; 0: none.",
    ),
]
ScrubRate = Annotated[ByteSize, Field(ge=1, description="What such a reading reads at most.")]


class EngineSettings(DirectorySettings, RetentionSettings, TransactionSettings):
    """How the writer lays out and writes a store; defaults are a broker's where it has them."""

    flush_mode: FlushMode = Field(
        _ENGINE.flush_mode,
        description="sync: acknowledged when on the device; async: when in the page cache.",
    )
    flush_interval_ms: int = Field(
        _ENGINE.flush_interval_ms, ge=1, description="Time between syncs in async mode."
    )
    transient_pool: bool = Field(
        _ENGINE.transient_pool,
        description="Write to shared memory first, commit to the files later.",
    )
    transient_pool_size: int = Field(
        _ENGINE.transient_pool_size, ge=1, description="Buffers of one commit log file each."
    )
    transient_pool_directory: str = Field(
        _ENGINE.transient_pool_directory, description="Where they are; must outlive the process."
    )
    commit_interval_ms: int = Field(
        _ENGINE.commit_interval_ms, ge=1, description="Time between commits from the pool."
    )
    commit_log_file_size: ByteSize = Field(
        ByteSize(_ENGINE.commit_log_file_size), ge=4096, description="Of one commit log file."
    )
    consume_queue_file_size: ByteSize = Field(
        ByteSize(_ENGINE.consume_queue_file_size),
        ge=20,
        description="Of one consume queue file; a multiple of 20.",
    )
    index_slot_count: int = Field(_ENGINE.index_slot_count, ge=1, description="Of one index file.")
    index_entry_count: int = Field(
        _ENGINE.index_entry_count, ge=2, description="Of one index file."
    )
    store_host: str = Field(
        _ENGINE.store_host, description="ADDRESS:PORT written into records and message ids."
    )
    body_size_max: ByteSize = Field(
        ByteSize(_ENGINE.body_size_max), ge=1, description="Largest message body."
    )
    append_property_crc: bool = Field(
        _ENGINE.append_property_crc, description="Write the checksum of the whole record."
    )
    unflushed_bytes_max: ByteSize = Field(
        ByteSize(_ENGINE.unflushed_bytes_max),
        ge=1,
        description="Appended and not yet synced; above it RESOURCE_EXHAUSTED.",
    )
    queue_flush_interval_ms: int = Field(
        _ENGINE.queue_flush_interval_ms, ge=1, description="Time between syncs of consume queues."
    )
    stage_timeout_ms: int = Field(
        _ENGINE.stage_timeout_ms,
        ge=1,
        description="Staged records that are not committed are removed after this.",
    )
    scrub_interval_ms: ScrubInterval = _ENGINE.scrub_interval_ms
    scrub_bytes_per_s: ScrubRate = ByteSize(_ENGINE.scrub_bytes_per_s)
    mapped_files_max: int = Field(
        _ENGINE.mapped_files_max, ge=1, description="Files of a kind kept mapped."
    )
    warm_cache_bytes_max: Literal["auto"] | ByteSize = Field(
        "auto",
        description="Page cache that may be filled ahead of the appends: this commit log file and "
        "the next are warmed whole if both fit. auto: an eighth of the memory; 0: never.",
    )

    def store_config(self) -> StoreConfig:
        """Return the engine's configuration; ValueError names fields which do not fit together."""
        names = {field.name for field in dataclass_fields(StoreConfig)}
        values = {n: v for n, v in self.model_dump().items() if n in names}
        if self.warm_cache_bytes_max == "auto":
            values["warm_cache_bytes_max"] = memory.limit_bytes() // WARM_SHARE
        plain: dict[str, Any] = {
            name: int(value) if isinstance(value, ByteSize) else value
            for name, value in values.items()
        }
        return StoreConfig(**plain)


class WriterSettings(MessagingSettings, EngineSettings, ListenSettings):
    """The writer: the one process that appends to a store."""

    listen: str = Field(
        DEFAULT_LISTEN["writer"], description="HOST:PORT to serve on; port 0 takes a free one."
    )
    stream_batches_max: int = Field(
        64, ge=1, description="Batches of one stream appended and not yet acknowledged."
    )
    reader_address: str = Field(DEFAULT_READER, description="HOST:PORT of the reader.")

    @field_validator("reader_address")
    @classmethod
    def _an_address(cls, value: str) -> str:
        return check_address(value)


class ReaderSettings(GatewayPlaceSettings, ListenSettings, DirectorySettings):
    """The reader: serves what is stored, keeps the progress of groups; RocketMQ's clients on a port of their own."""

    listen: str = Field(
        DEFAULT_LISTEN["reader"], description="HOST:PORT to serve on; port 0 takes a free one."
    )
    pull_bytes_max: ByteSize = Field(
        ByteSize(8 << 20), ge=1, description="Largest answer of one pull, whatever is asked for."
    )
    stream_bytes_max: ByteSize = Field(
        ByteSize(256 << 20),
        ge=1,
        description="Answers of all pull streams together that may wait for their callers to read.",
    )
    wait_ms_max: int = Field(60_000, ge=0, description="Longest wait of one pull or receive.")
    writer_address: str = Field(
        DEFAULT_WRITER,
        description="HOST:PORT of the writer. Of a reader: where dead letters go; empty: they wait.",
    )
    auto_create_groups: bool = Field(
        True, description="Make a consumer group with default settings when it first receives."
    )
    lease_ms: int = Field(
        _LEASES.lease_ms, ge=1, description="How long a lease lasts if its receive does not say."
    )
    lease_renewed_max_ms: int = Field(
        _LEASES.renewed_max_ms,
        ge=1,
        description="A lease that its client renews is given back after this.",
    )
    lease_sync_interval_ms: int = Field(
        _LEASES.sync_interval_ms,
        ge=0,
        description="Time between syncs of what was leased and acknowledged; 0: with each answer.",
    )
    store_wait_seconds: float = Field(
        60.0, ge=0, description="How long to wait for the writer to make the store."
    )

    @field_validator("writer_address")
    @classmethod
    def _nothing_or_an_address(cls, value: str) -> str:
        return check_address(value) if value else value

    @model_validator(mode="after")
    def _knows_the_writer(self) -> Self:
        for flag, value in (
            ("--writer-endpoint", self.writer_endpoint),
            ("--gateway-listen", self.gateway_listen),
        ):
            if value and not self.writer_address:
                raise ValueError(f"--writer-address is needed with {flag}")
        return self

    @model_validator(mode="after")
    def _tls_beside_a_port(self) -> Self:
        if self.gateway_tls_listen:
            if not self.gateway_listen:
                raise ValueError("--gateway-listen is needed with --gateway-tls-listen")
            self._check_tls_files()
        return self

    def of_gateway(self) -> GatewaySettings:
        """Return the settings of the gateway's port: its own defaults, and what was set of this process."""
        shared = self.model_fields_set & GatewaySettings.model_fields.keys()
        return GatewaySettings.model_construct(
            **{name: getattr(self, name) for name in shared}
            | {"listen": self.gateway_listen, "tls_listen": self.gateway_tls_listen}
        )

    def lease_config(self) -> LeaseConfig:
        """Return the configuration of leases."""
        return LeaseConfig(
            lease_ms=self.lease_ms,
            renewed_max_ms=self.lease_renewed_max_ms,
            sync_interval_ms=self.lease_sync_interval_ms,
        )


class IndexerSettings(ListenSettings, DirectorySettings):
    """The indexer: follows the commit log and builds index files."""

    listen: str = Field(
        DEFAULT_LISTEN["indexer"], description="HOST:PORT to serve on; port 0 takes a free one."
    )
    store_wait_seconds: float = Field(
        60.0, ge=0, description="How long to wait for the writer to make the store."
    )
    scrub_interval_ms: ScrubInterval = _ENGINE.scrub_interval_ms
    scrub_bytes_per_s: ScrubRate = ByteSize(_ENGINE.scrub_bytes_per_s)


class GatewaySettings(TlsSettings, ListenSettings):
    """The gateway: serves the clients of RocketMQ 5, with the writer and the reader behind it."""

    listen: str = Field(
        DEFAULT_LISTEN["gateway"], description="HOST:PORT to serve on; port 0 takes a free one."
    )
    concurrent_calls_max: int = Field(
        20_000, ge=1, description="Calls under way at once; above it RESOURCE_EXHAUSTED."
    )
    connections_max: int = Field(
        8_192,
        ge=1,
        description=ProcessSettings.model_fields["connections_max"].description,
    )
    tls_listen: str = Field(
        "", description="HOST:PORT to serve on with TLS; needs a certificate and its key."
    )
    writer_address: str = Field(DEFAULT_WRITER, description="HOST:PORT of the writer.")
    reader_address: str = Field(DEFAULT_READER, description="HOST:PORT of the reader.")

    @field_validator("tls_listen", "writer_address", "reader_address")
    @classmethod
    def _nothing_or_an_address(cls, value: str) -> str:
        return check_address(value) if value else value

    @model_validator(mode="after")
    def _tls_has_its_files(self) -> Self:
        if self.tls_listen:
            self._check_tls_files()
        return self


class ServeSettings(GatewayPlaceSettings, EngineSettings):
    """All services under one supervisor."""

    writer_listen: str = Field(DEFAULT_LISTEN["writer"], description="HOST:PORT of the writer.")
    reader_listen: str = Field(DEFAULT_LISTEN["reader"], description="HOST:PORT of the reader.")
    indexer_listen: str = Field(DEFAULT_LISTEN["indexer"], description="HOST:PORT of the indexer.")
    gateway_listen: str = Field(
        DEFAULT_LISTEN["gateway"],
        description=GatewayPlaceSettings.model_fields["gateway_listen"].description,
    )

    @field_validator("writer_listen", "reader_listen", "indexer_listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        return check_address(value)

    @model_validator(mode="after")
    def _known_ports(self) -> Self:
        listens = self.writer_listen, self.reader_listen
        if self.splits_routes and any(listen.endswith(":0") for listen in listens):
            raise ValueError(
                "--writer-listen and --reader-listen need ports with --writer-endpoint"
            )
        return self


def size_text(size: int) -> str:
    """Return bytes as they are typed: in the largest unit that divides them."""
    unit, factor = next((u for u in UNITS if size % u[1] == 0), ("", 1))
    return f"{size // factor}{unit}"
