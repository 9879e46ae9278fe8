"""What each service takes of the settings, and what must fit together."""

from __future__ import annotations

import ssl
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Final, Self

from pydantic import model_validator

from penstock.addresses import (
    DEFAULT_GATEWAY,
    DEFAULT_INDEXER,
    DEFAULT_METRICS,
    DEFAULT_READER,
    DEFAULT_WRITER,
)
from services import memory
from services.config import groups
from services.config.values import AUTO, Address, AddressOrNone, Count, is_open_to_network
from storage.config import LeaseConfig, StoreConfig

WARM_SHARE: Final = 8  # of the memory, one part for page cache filled ahead of the appends


class ProcessSettings(
    groups.ConfigFileSettings, groups.LogSettings, groups.MetricsSettings, groups.CallSettings
):
    """What every process takes."""

    @model_validator(mode="after")
    def _metrics_stay_here(self) -> Self:
        listen = self.metrics_listen
        if listen and is_open_to_network(listen) and not self.metrics_plaintext:
            raise ValueError(
                f"--metrics-listen: other machines reach {listen}, and it has no TLS; listen on"
                " loopback, or say --metrics-plaintext"
            )
        return self


class ListenSettings(ProcessSettings, groups.PortSettings, groups.SupervisionSettings):
    """What a process with one address takes."""


class MessagingSettings(ProcessSettings, groups.RocketmqSettings):
    """What a process that serves RocketMQ's clients takes."""

    @model_validator(mode="after")
    def _both_endpoints_or_none(self) -> Self:
        if bool(self.writer_endpoint) != bool(self.reader_endpoint):
            raise ValueError(
                "--writer-endpoint and --reader-endpoint are given together or not at all"
            )
        return self

    @property
    def splits_routes(self) -> bool:
        """Whether routes name the writer for sends and the reader for receives."""
        return bool(self.writer_endpoint)


class EngineSettings(
    groups.DirectorySettings,
    groups.DurabilitySettings,
    groups.FlushingSettings,
    groups.FileSettings,
    groups.RecordSettings,
    groups.RetentionSettings,
    groups.ScrubSettings,
    groups.TransactionSettings,
):
    """How the writer lays out and writes a store; defaults are a broker's where it has them."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.store_config()
        return self

    def store_config(self) -> StoreConfig:
        """Return the engine's configuration; ValueError names fields which do not fit together."""
        names = {field.name for field in dataclass_fields(StoreConfig)}
        values = self.model_dump(include=names)
        if self.warm_cache_bytes_max == AUTO:
            values["warm_cache_bytes_max"] = memory.limit_bytes() // WARM_SHARE
        return StoreConfig(**values)


class WriterSettings(
    MessagingSettings,
    EngineSettings,
    ListenSettings,
    groups.ReaderAddressSettings,
    groups.StreamSettings,
):
    """The writer: the one process that appends to a store."""

    listen: Address = DEFAULT_WRITER


class ReaderSettings(
    MessagingSettings,
    ListenSettings,
    groups.DirectorySettings,
    groups.StoreWaitSettings,
    groups.WriterAddressSettings,
    groups.PullSettings,
    groups.LeaseSettings,
    groups.GatewayPortSettings,
    groups.CertificateSettings,
):
    """The reader: serves what is stored, keeps the progress of groups; RocketMQ's clients on a port of their own."""

    listen: Address = DEFAULT_READER

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
            check_certificate(self)
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


class IndexerSettings(
    ListenSettings, groups.DirectorySettings, groups.StoreWaitSettings, groups.ScrubSettings
):
    """The indexer: follows the commit log and builds index files."""

    listen: Address = DEFAULT_INDEXER


class GatewaySettings(
    MessagingSettings,
    ListenSettings,
    groups.WriterAddressSettings,
    groups.ReaderAddressSettings,
    groups.TlsPortSettings,
    groups.CertificateSettings,
):
    """The gateway: serves the clients of RocketMQ 5, with the writer and the reader behind it."""

    listen: Address = DEFAULT_GATEWAY
    concurrent_calls_max: Count = 20_000
    connections_max: Count = 8_192

    @model_validator(mode="after")
    def _tls_has_its_files(self) -> Self:
        if self.tls_listen:
            check_certificate(self)
        return self


class ServeSettings(
    MessagingSettings,
    EngineSettings,
    groups.ServicePortsSettings,
    groups.GatewayPortSettings,
    groups.CertificateSettings,
):
    """All services under one supervisor."""

    gateway_listen: AddressOrNone = DEFAULT_GATEWAY
    metrics_listen: AddressOrNone = DEFAULT_METRICS

    @model_validator(mode="after")
    def _known_ports(self) -> Self:
        listens = self.writer_listen, self.reader_listen
        if self.splits_routes and any(listen.endswith(":0") for listen in listens):
            raise ValueError(
                "--writer-listen and --reader-listen need ports with --writer-endpoint"
            )
        return self


KINDS: Final[dict[str, type[ProcessSettings]]] = {
    "writer": WriterSettings,
    "reader": ReaderSettings,
    "indexer": IndexerSettings,
    "gateway": GatewaySettings,
    "serve": ServeSettings,
}


def check_certificate(settings: groups.CertificateSettings) -> None:
    """Raise ValueError with what is wrong with the files of a port with TLS."""
    chain = _file("--tls-certificate", settings.tls_certificate)
    key = _file("--tls-key", settings.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")  # whatever their strength: that gRPC decides
    try:  # of files that are none of these gRPC says no more than that it cannot listen
        context.load_cert_chain(chain, key, password=b"")
    except OSError as error:
        problem = error.strerror or str(error)
        raise ValueError(
            f"{chain} and {key} are no certificate and its private key: {problem}"
        ) from None


def _file(flag: str, path: Path | None) -> Path:
    if path is None:
        raise ValueError(f"{flag} is needed where a port serves TLS")
    if not path.is_file():
        raise ValueError(f"{flag}: {path} is not a file")
    return path
