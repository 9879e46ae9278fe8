"""What each service takes of the settings, and what must fit together."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import ClassVar, Final, Self, cast

from pydantic import model_validator

from penstock.addresses import (
    DEFAULT_CONSOLE,
    DEFAULT_GATEWAY,
    DEFAULT_INDEXER,
    DEFAULT_METRICS,
    DEFAULT_READER,
    DEFAULT_WRITER,
)
from penstock.tls import PUBLIC, TLS, authorities, identity, tls_of
from services import memory
from services.config import groups
from services.config.values import (
    AUTO,
    Address,
    AddressOrNone,
    Count,
    NotNegative,
    is_open_to_network,
)
from storage.config import LeaseConfig, StoreConfig

LOOPBACK: Final = "127.0.0.1:0"
WARM_SHARE: Final = 8  # of the memory, one part for page cache filled ahead of the appends


class SecureSettings(groups.ConfigFileSettings, groups.LogLevelSettings, groups.TlsSettings):
    """What every process takes that listens, a service or not, and what keeps its ports secure."""

    port_files: ClassVar[tuple[str, str]] = ("tls_cert", "tls_key")
    """The settings that say the certificate of its ports, and the key."""

    @property
    def port_cert(self) -> Path | None:
        """The certificate of its ports, None if they serve plaintext."""
        return cast("Path | None", getattr(self, self.port_files[0]))

    @property
    def port_key(self) -> Path | None:
        """The certificate's private key."""
        return cast("Path | None", getattr(self, self.port_files[1]))

    @model_validator(mode="after")
    def _tls_files_are_good(self) -> Self:
        for names in {("tls_cert", "tls_key"), self.port_files}:
            cert, key = (getattr(self, name) for name in names)
            if (cert is None) != (key is None):
                raise ValueError(f"{_flags(names)} are given together or not at all")
            if cert is not None:
                identity(cert, key)
        if self.tls_ca not in ("", PUBLIC):
            authorities(self.tls_ca)
        for name in ("tls_client_ca", "gateway_client_ca"):
            if (client_ca := getattr(self, name, None)) is not None:
                if self.tls_cert is None:
                    raise ValueError(f"--tls-cert is needed with --{name.replace('_', '-')}")
                authorities(client_ca)
        return self

    @model_validator(mode="after")
    def _plaintext_where_it_is_asked_for(self) -> Self:
        for name in type(self).model_fields:
            is_served = name.endswith("listen")
            if not is_served and not name.endswith("_address"):
                continue
            address = getattr(self, name)
            is_secure = self.port_cert is not None if is_served else bool(self.tls_ca)
            if address and not is_secure and not self.plaintext and is_open_to_network(address):
                files = _flags(self.port_files) if is_served else "--tls-ca"
                raise ValueError(
                    f"--{name.replace('_', '-')}: {address} is not of this machine alone: give {files},"
                    " or --plaintext to do without TLS"
                )
        return self

    @model_validator(mode="after")
    def _accounts_over_tls(self) -> Self:
        if getattr(self, "accounts", False) and self.port_cert is None:
            for name in type(self).model_fields:
                if name.endswith("listen") and is_open_to_network(getattr(self, name) or LOOPBACK):
                    raise ValueError(
                        f"--{name.replace('_', '-')}: with --accounts it needs {_flags(self.port_files)}: a"
                        " signature that is read on its way can be used again for ever"
                    )
        return self

    @property
    def client_ca(self) -> Path | None:
        """The authorities of clients' certificates, None if its port asks for none."""
        return getattr(self, "tls_client_ca", None)

    @property
    def tls_of_calls(self) -> TLS | None:
        """TLS of calls to other services, None for plaintext."""
        return tls_of(
            self.tls_ca,
            str(self.tls_cert or ""),
            str(self.tls_key or ""),
            self.tls_server_name,
        )


def _flags(names: tuple[str, str]) -> str:
    return " and ".join(f"--{name.replace('_', '-')}" for name in names)


class ProcessSettings(
    SecureSettings,
    groups.LogSettings,
    groups.TraceSettings,
    groups.MetricsSettings,
    groups.CallSettings,
    groups.LimitSettings,
):
    """What every service takes."""


class ListenSettings(ProcessSettings, groups.PortSettings, groups.SupervisionSettings):
    """What a process with one address takes."""


class StoreProcessSettings(
    ListenSettings,
    groups.DirectorySettings,
    groups.SharingSettings,
    groups.ClientCertificateSettings,
    groups.AccountSettings,
):
    """What a process over a store directory takes that serves on a port."""


class MessagingSettings(ProcessSettings, groups.RocketmqSettings):
    """What a process that serves RocketMQ's clients takes."""

    @model_validator(mode="after")
    def _endpoints_are_reached(self) -> Self:
        if bool(self.writer_endpoint) != bool(self.reader_endpoint):
            raise ValueError(
                "--writer-endpoint and --reader-endpoint are given together or not at all"
            )
        if self.splits_routes and getattr(self, "tls_client_ca", None) is not None:
            raise ValueError(
                "--tls-client-ca keeps RocketMQ's clients, which show no certificate, from the"
                " --writer-endpoint: leave out one of the two"
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


class WriterSettings(  # type: ignore[misc]  # the plugin's model_construct of several bases
    MessagingSettings,
    EngineSettings,
    StoreProcessSettings,
    groups.ReaderAddressSettings,
    groups.StreamSettings,
):
    """The writer: the one process that appends to a store."""

    listen: Address = DEFAULT_WRITER


class ReaderSettings(
    MessagingSettings,
    StoreProcessSettings,
    groups.StoreWaitSettings,
    groups.WriterAddressSettings,
    groups.PullSettings,
    groups.LeaseSettings,
    groups.GatewayPortSettings,
    groups.GatewayCertificateSettings,
):
    """The reader: serves what is stored, keeps the progress of groups; RocketMQ's clients on a port of their
    own.
    """

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

    def of_gateway(self) -> GatewaySettings:
        """Return the settings of the gateway's port: its own defaults, and what was set of this process."""
        shared = self.model_fields_set & GatewaySettings.model_fields.keys()
        return GatewaySettings.model_construct(
            **{name: getattr(self, name) for name in shared} | {"listen": self.gateway_listen}
        )

    def lease_config(self) -> LeaseConfig:
        """Return the configuration of leases."""
        return LeaseConfig(
            lease_ms=self.lease_ms,
            renewed_max_ms=self.lease_renewed_max_ms,
            sync_interval_ms=self.lease_sync_interval_ms,
        )


class IndexerSettings(StoreProcessSettings, groups.StoreWaitSettings, groups.ScrubSettings):
    """The indexer: follows the commit log and builds index files."""

    listen: Address = DEFAULT_INDEXER


class GatewaySettings(
    MessagingSettings,
    ListenSettings,
    groups.AccountSettings,
    groups.WriterAddressSettings,
    groups.ReaderAddressSettings,
    groups.GatewayCertificateSettings,
):
    """The gateway: serves the clients of RocketMQ 5, with the writer and the reader behind it."""

    listen: Address = DEFAULT_GATEWAY
    concurrent_calls_max: Count = 20_000
    connections_max: Count = 8_192
    user_calls_max: NotNegative = 15_000
    user_connections_max: NotNegative = 6_144

    @property
    def client_ca(self) -> Path | None:
        """The authorities of clients' certificates, None if its port asks for none."""
        return self.gateway_client_ca

    @model_validator(mode="after")
    def _metrics_are_for_this_machine(self) -> Self:
        if self.accounts and is_open_to_network(self.metrics_listen or LOOPBACK):
            raise ValueError(
                "--metrics-listen: with --accounts a gateway on another machine shows them on loopback alone: the"
                " accounts are the store's"
            )
        return self


class ServeSettings(
    MessagingSettings,
    EngineSettings,
    groups.SharingSettings,
    groups.AccountSettings,
    groups.ServicePortsSettings,
    groups.ClientCertificateSettings,
    groups.GatewayPortSettings,
    groups.GatewayCertificateSettings,
):
    """All services under one supervisor."""

    gateway_listen: AddressOrNone = DEFAULT_GATEWAY
    metrics_listen: AddressOrNone = DEFAULT_METRICS

    @model_validator(mode="after")
    def _services_check_each_other(self) -> Self:
        if self.tls_cert is not None and not self.tls_ca:
            raise ValueError("--tls-ca is needed with --tls-cert: the services call each other")
        return self

    @model_validator(mode="after")
    def _known_ports(self) -> Self:
        listens = self.writer_listen, self.reader_listen
        if self.splits_routes and any(listen.endswith(":0") for listen in listens):
            raise ValueError(
                "--writer-listen and --reader-listen need ports with --writer-endpoint"
            )
        return self


class ConsoleSettings(
    SecureSettings,
    groups.PortSettings,
    groups.AccountSettings,
    groups.CalledServicesSettings,
    groups.ConsolePageSettings,
):
    """The console: pages for a browser, over the calls that every client can make."""

    port_files = ("listen_tls_cert", "listen_tls_key")
    listen: Address = DEFAULT_CONSOLE

    @model_validator(mode="after")
    def _a_certificate_is_of_calls_with_tls(self) -> Self:
        if self.tls_cert is not None and not self.tls_ca:
            raise ValueError(
                "--tls-ca is needed with --tls-cert, which services are shown;"
                " pages have --listen-tls-cert"
            )
        return self

    @model_validator(mode="after")
    def _nobody_changes_the_store_unknown(self) -> Self:
        if is_open_to_network(self.listen) and not self.accounts and not self.read_only:
            raise ValueError(
                f"--listen: {self.listen} is not of this machine alone: give --accounts, so that people sign in,"
                " or --read-only"
            )
        return self


KINDS: Final[dict[str, type[SecureSettings]]] = {
    "writer": WriterSettings,
    "reader": ReaderSettings,
    "indexer": IndexerSettings,
    "gateway": GatewaySettings,
    "serve": ServeSettings,
    "console": ConsoleSettings,
}
