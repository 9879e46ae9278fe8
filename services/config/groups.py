"""Every setting of the services, in groups by what they are about; ``GROUPS`` is their order in help and
docs.

A field ``flush_mode`` is the flag ``--flush-mode``, the variable ``PENSTOCK_FLUSH_MODE`` and the key
``flush_mode`` of the file. A class that composes groups may give a field another default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from penstock.addresses import DEFAULT_INDEXER, DEFAULT_READER, DEFAULT_WRITER
from services.config.values import (
    AUTO,
    Address,
    AddressOrNone,
    AuthoritiesFile,
    Count,
    Endpoint,
    NotNegative,
    Percent,
    Size,
    SizeOrAuto,
    SizeOrNone,
)
from storage.config import FlushMode, LeaseConfig, StoreConfig

_ENGINE: Final = StoreConfig()
_LEASES: Final = LeaseConfig()
LogLevel = Literal["debug", "info", "warning", "error"]
AccessLog = Literal["none", "failures", "all"]


class SettingsGroup(BaseModel):
    """Some settings; each process reads one class that composes groups."""

    model_config = ConfigDict(extra="ignore", defer_build=True, use_attribute_docstrings=True)


class DirectorySettings(SettingsGroup):
    """What a process over a store directory takes."""

    store: Path
    """Store directory; the writer makes it if it is missing."""


class PortSettings(SettingsGroup):
    """Where a process with one address serves."""

    listen: Address
    """HOST:PORT to serve on; port 0 takes a free one."""


class ServicePortsSettings(SettingsGroup):
    """Where the services serve under one supervisor."""

    writer_listen: Address = DEFAULT_WRITER
    """HOST:PORT of the writer."""
    reader_listen: Address = DEFAULT_READER
    """HOST:PORT of the reader."""
    indexer_listen: Address = DEFAULT_INDEXER
    """HOST:PORT of the indexer."""


class GatewayPortSettings(SettingsGroup):
    """Where the reader serves RocketMQ's clients."""

    gateway_listen: AddressOrNone = ""
    """HOST:PORT of the gateway, which is a port of the reader; none: there is no gateway."""


class DurabilitySettings(SettingsGroup):
    """What an acknowledgement means."""

    flush_mode: FlushMode = _ENGINE.flush_mode
    """sync: acknowledged when on the device; async: when in the page cache."""


class ConfigFileSettings(SettingsGroup):
    """Where settings come from besides flags and variables."""

    config: Path | None = None
    """TOML file with any of these settings."""


class WriterAddressSettings(SettingsGroup):
    """Where the writer is."""

    writer_address: AddressOrNone = DEFAULT_WRITER
    """HOST:PORT of the writer. Of a reader: where dead letters go; empty: they wait."""


class ReaderAddressSettings(SettingsGroup):
    """Where the reader is."""

    reader_address: Address = DEFAULT_READER
    """HOST:PORT of the reader."""


class CalledServicesSettings(SettingsGroup):
    """Where the services are, under the names that all commands have for them."""

    writer: Address = DEFAULT_WRITER
    """Address of the writer."""
    reader: Address = DEFAULT_READER
    """Address of the reader."""
    indexer: Address = DEFAULT_INDEXER
    """Address of the indexer."""


class ConsolePageSettings(SettingsGroup):
    """What the console's pages do, and how they are served."""

    listen_tls_cert: Path | None = None
    """PEM file: certificate of the pages and its chain. With it they are served over HTTPS."""
    listen_tls_key: Path | None = None
    """PEM file: that certificate's private key."""
    read_only: bool = False
    """Whether the pages change nothing."""


class StoreWaitSettings(SettingsGroup):
    """What a process does until there is a store."""

    store_wait_seconds: Annotated[float, Field(ge=0)] = 60.0
    """How long to wait for the writer to make the store."""


class LogLevelSettings(SettingsGroup):
    """Events that are logged."""

    log_level: LogLevel = "info"
    """Least severe event to log."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """How events are written; auto: console on a terminal, else json."""


class LogSettings(LogLevelSettings):
    """Events that are logged, calls among them."""

    access_log: AccessLog = "failures"
    """Which calls are logged, each with its request id."""
    slow_call_ms: NotNegative = 0
    """Calls that take longer are logged, those excepted that wait for messages; 0: none."""


class MetricsSettings(SettingsGroup):
    """Where a process says how it is."""

    metrics_listen: AddressOrNone = ""
    """HOST:PORT of /metrics over HTTP, for Prometheus; none: nothing is measured for it. Where other machines
    reach it, it has TLS, and with accounts asks for a user with Get on Cluster:*."""


class TraceSettings(SettingsGroup):
    """Spans of calls."""

    traces_endpoint: str = ""
    """Where spans go by OTLP over gRPC: HOST:PORT, or https://HOST:PORT for TLS; none: there are no traces."""
    traces_ratio: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of the calls that are traced, of those whose caller traces nothing."""


class CallSettings(SettingsGroup):
    """How calls are taken, and limits of calls and connections."""

    rpc_server: Literal["core", "aio"] = "core"
    """What takes calls: gRPC's core, or grpc.aio at three times the processor time. grpc.aio also serves
    where the installed grpcio has another core."""
    message_bytes_max: Annotated[Size, Field(ge=64 << 10, le=1 << 30)] = 16 << 20
    """Largest request; larger ones are refused unread."""
    concurrent_calls_max: Count = 4_096
    """Calls under way at once; above it RESOURCE_EXHAUSTED."""
    connections_max: Count = 2_048
    """Open connections of a port; above it, or above its part of half the files that the process may
    have open, none is taken."""
    connection_idle_seconds: Annotated[float, Field(gt=0)] = 300.0
    """A connection without calls is closed after this."""
    handshake_timeout_seconds: Annotated[float, Field(gt=0)] = 10.0
    """A connection which has not spoken HTTP/2 by then is closed."""
    keepalive_seconds: Annotated[float, Field(gt=0)] = 30.0
    """A silent connection is pinged after this, and closed if it is dead."""
    drain_grace_seconds: Annotated[float, Field(ge=0)] = 10.0
    """How long calls under way may take after a stop signal."""


class LimitSettings(SettingsGroup):
    """What one user may take of a port; where accounts are off one connection, once one is set."""

    user_requests_per_second: NotNegative = 100_000
    """Calls, and frames of streams, that a user may make in a second; 0: no limit. Where accounts are off,
    these five are of a connection, once one of them is given."""
    user_bytes_per_second: SizeOrNone = 4 << 30
    """Bytes of requests and answers of one user in a second."""
    user_calls_max: NotNegative = 3_072
    """Calls of one user under way at once."""
    user_call_bytes_max: SizeOrNone = 256 << 20
    """Bytes of those calls that memory holds; one call alone may hold more."""
    user_connections_max: NotNegative = 1_024
    """Connections of one user with calls under way."""


class SupervisionSettings(SettingsGroup):
    """How a process depends on its supervisor."""

    supervised: bool = False
    """Stop when the parent process ends."""


class FlushingSettings(SettingsGroup):
    """When the writer writes and syncs."""

    flush_interval_ms: Count = _ENGINE.flush_interval_ms
    """Time between syncs in async mode."""
    queue_flush_interval_ms: Count = _ENGINE.queue_flush_interval_ms
    """Time between syncs of consume queues."""
    unflushed_bytes_max: Size = _ENGINE.unflushed_bytes_max
    """Bytes appended and not yet synced; above it RESOURCE_EXHAUSTED."""
    transient_pool: bool = _ENGINE.transient_pool
    """Write to shared memory first, commit to the files later."""
    transient_pool_size: Count = _ENGINE.transient_pool_size
    """Buffers of the pool, each of one commit log file."""
    transient_pool_directory: str = _ENGINE.transient_pool_directory
    """Directory of those buffers; its files must outlive the process."""
    commit_interval_ms: Count = _ENGINE.commit_interval_ms
    """Time between commits from the pool."""


class FileSettings(SettingsGroup):
    """How the writer lays out a store; sizes are fixed when it is made."""

    commit_log_file_size: Annotated[Size, Field(ge=4096)] = _ENGINE.commit_log_file_size
    """Size of a commit log file."""
    consume_queue_file_size: Annotated[Size, Field(ge=20)] = _ENGINE.consume_queue_file_size
    """Size of a consume queue file; a multiple of 20."""
    index_slot_count: Count = _ENGINE.index_slot_count
    """Hash slots of an index file."""
    index_entry_count: Annotated[int, Field(ge=2)] = _ENGINE.index_entry_count
    """Entries of an index file."""
    mapped_files_max: Count = _ENGINE.mapped_files_max
    """Files of a kind that stay mapped."""
    warm_cache_bytes_max: SizeOrAuto = AUTO
    """Page cache that the writer fills ahead of its appends: this commit log file and the next, if both
    fit. auto: an eighth of the memory; 0: never."""


class SharingSettings(SettingsGroup):
    """Who may open what a process makes in a store directory."""

    shared_files: bool = False
    """Let other users of the machine open the store's files, such as Spark and a broker, as far as the umask
    does; without it files have mode 0600, directories 0700."""


class RecordSettings(SettingsGroup):
    """What the writer takes and writes."""

    store_host: str = _ENGINE.store_host
    """ADDRESS:PORT written into records and message ids."""
    body_size_max: Size = _ENGINE.body_size_max
    """Largest message body."""
    append_property_crc: bool = _ENGINE.append_property_crc
    """Write the checksum of the whole record."""
    stage_timeout_ms: Count = _ENGINE.stage_timeout_ms
    """Staged records that are not committed are removed after this."""


class StreamSettings(SettingsGroup):
    """What streams of producers hold."""

    stream_batches_max: Count = 64
    """Batches of a stream that are appended and not yet acknowledged."""


class PullSettings(SettingsGroup):
    """What pulls of a reader hold and how long they wait."""

    pull_bytes_max: Size = 8 << 20
    """Largest answer of one pull, whatever is asked for."""
    stream_bytes_max: Size = 256 << 20
    """Answers of all pull streams together that may wait for their callers to read."""
    wait_ms_max: NotNegative = 60_000
    """Longest wait of one pull or receive."""


class LeaseSettings(SettingsGroup):
    """Consumer groups whose messages are leased."""

    auto_create_groups: bool = True
    """Make a consumer group with default settings when it first receives."""
    lease_ms: Count = _LEASES.lease_ms
    """How long a lease lasts if its receive does not say."""
    lease_renewed_max_ms: Count = _LEASES.renewed_max_ms
    """A lease that its client renews is given back after this."""
    lease_sync_interval_ms: NotNegative = _LEASES.sync_interval_ms
    """Time between syncs of what was leased and acknowledged; 0: with each answer."""


class TransactionSettings(SettingsGroup):
    """When producers are asked about transactions that nobody has ended."""

    transaction_timeout_ms: Count = _ENGINE.transaction_timeout_ms
    """Time until a producer is asked what becomes of a transaction."""
    transaction_check_interval_ms: Count = _ENGINE.transaction_check_interval_ms
    """Time between two such questions."""
    transaction_check_max: Count = _ENGINE.transaction_check_max
    """Number of questions until the transaction is given up."""
    transaction_age_max_ms: Count = _ENGINE.transaction_age_max_ms
    """Age at which a transaction is given up."""
    transaction_pending_max: Count = _ENGINE.transaction_pending_max
    """Half messages that may be pending; more are refused until some are ended."""


class RetentionSettings(SettingsGroup):
    """Which files of the log are deleted when; percentages are of the disk that the store is on."""

    retention_ms: NotNegative = _ENGINE.retention_ms
    """Age since its last change at which a file of the log is deleted, with its messages, read or not;
    0: nothing is deleted, and the disk is not looked at."""
    retention_delete_hours: str = _ENGINE.retention_delete_hours
    """Hours of the day in which expired files are deleted, such as 02;04; *: all."""
    retention_clean_percent: Percent = _ENGINE.retention_clean_percent
    """Use of the disk above which expired files are deleted at any hour."""
    retention_force_percent: Percent = _ENGINE.retention_force_percent
    """Use of the disk above which the oldest files are deleted, whatever their age; 100: never."""
    retention_refuse_percent: Percent = _ENGINE.retention_refuse_percent
    """Use of the disk above which producers are refused with RESOURCE_EXHAUSTED, until it is down to
    the force percentage; 100: never."""


class ScrubSettings(SettingsGroup):
    """The search for damage."""

    scrub_interval_ms: NotNegative = _ENGINE.scrub_interval_ms
    """Time between two scrubs, which read all of the store in search of damage; 0: none."""
    scrub_bytes_per_s: Size = _ENGINE.scrub_bytes_per_s
    """Bytes that a scrub reads in a second at most."""


class RocketmqSettings(SettingsGroup):
    """How clients of RocketMQ are served, in whichever process."""

    broker_name: Annotated[str, Field(min_length=1)] = "penstock"
    """Name of the broker in routes."""
    cluster_name: Annotated[str, Field(min_length=1)] = "DefaultCluster"
    """Name of the cluster, written into records as a broker's proxy does."""
    message_body_max: Size = 4 << 20
    """Largest body that clients may send."""
    sending_bytes_max: Size = 128 << 20
    """Bytes of messages that wait for the writer; above it sends are refused with TOO_MANY_REQUESTS."""
    sessions_max: Count = 20_000
    """Clients remembered; above it the gateway forgets the one silent for longest."""
    session_timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    """A client that is silent for this long has gone."""
    push_lease_ms: Annotated[int, Field(ge=1_000)] = 60_000
    """Lease of a push consumer's message, renewed while it lives."""
    writer_endpoint: Endpoint = ""
    """HOST:PORT where RocketMQ's clients reach the writer. With reader_endpoint: routes are split,
    clients that honour it send to the writer and receive from the reader. Empty: all through the
    gateway."""
    reader_endpoint: Endpoint = ""
    """HOST:PORT where RocketMQ's clients reach the reader."""


class TlsSettings(SettingsGroup):
    """TLS of ports, and of calls to other services."""

    tls_cert: Path | None = None
    """PEM file: certificate and its chain. With it every port serves TLS, and nothing else; the console
    shows it to services alone. A new one is taken up without a restart, as the other files are."""
    tls_key: Path | None = None
    """PEM file: the certificate's private key."""
    tls_ca: AuthoritiesFile = ""
    """PEM file: authorities of the certificates of the services that are called, which are shown the
    certificate of tls_cert; public: the authorities that gRPC knows. None: calls are plaintext."""
    tls_server_name: str = ""
    """Name in the certificates of the services that are called; none: the host of their address."""
    plaintext: bool = False
    """Serve and call in plaintext also where other machines can listen, and not on loopback alone."""


class ClientCertificateSettings(SettingsGroup):
    """Who may connect to writer, reader and indexer."""

    tls_client_ca: Path | None = None
    """PEM file: authorities of clients' certificates. With it each client, RocketMQ's on the gateway's
    port excepted, shows one (mutual TLS)."""


class GatewayCertificateSettings(SettingsGroup):
    """Who may connect to the gateway."""

    gateway_client_ca: Path | None = None
    """The same of the gateway's port; RocketMQ's official clients have no certificate to show."""


class AccountSettings(SettingsGroup):
    """Who may call."""

    accounts: bool = False
    """Whether calls need an account of the store (docs/security.md)."""


ESSENTIALS: Final = "Essentials"
GROUPS: Final[dict[str, tuple[type[SettingsGroup], ...]]] = {
    ESSENTIALS: (
        DirectorySettings,
        DurabilitySettings,
        PortSettings,
        ServicePortsSettings,
        GatewayPortSettings,
        ConfigFileSettings,
    ),
    "Other services": (
        WriterAddressSettings,
        ReaderAddressSettings,
        CalledServicesSettings,
        StoreWaitSettings,
    ),
    "TLS": (TlsSettings, ClientCertificateSettings, GatewayCertificateSettings),
    "Accounts": (AccountSettings,),
    "Logs and traces": (LogSettings, TraceSettings),
    "Metrics": (MetricsSettings,),
    "Calls and connections": (CallSettings, LimitSettings, SupervisionSettings),
    "Flushing": (FlushingSettings,),
    "Files": (FileSettings, SharingSettings),
    "Messages": (RecordSettings, StreamSettings, PullSettings),
    "Leases": (LeaseSettings,),
    "Retention": (RetentionSettings,),
    "Scrub": (ScrubSettings,),
    "Transactions": (TransactionSettings,),
    "RocketMQ's clients": (RocketmqSettings,),
    "Console": (ConsolePageSettings,),
}


class HelpEntry(NamedTuple):
    """Where help and docs show a setting, and what they say about it."""

    title: str
    meaning: str


def help_entries(kind: type[SettingsGroup]) -> dict[str, HelpEntry]:
    """Return where each setting of a process is shown, in the order of help and docs."""
    return {
        name: HelpEntry(title, " ".join((field.description or "").split()))
        for title, groups in GROUPS.items()
        for group in groups
        for name, field in group.model_fields.items()
        if name in kind.model_fields
    }
