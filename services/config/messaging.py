"""Settings of what serves RocketMQ's clients, in whichever process, and where the gateway's port is."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, Self

from pydantic import ByteSize, Field, field_validator, model_validator

from penstock.addresses import address_problem
from services.config.process import ProcessSettings, check_address

NONE: Final = "none"  # as one types that there is no such port


class MessagingSettings(ProcessSettings):
    """How clients of RocketMQ are served."""

    broker_name: str = Field("penstock", min_length=1, description="Name of the broker in routes.")
    cluster_name: str = Field(
        "DefaultCluster",
        min_length=1,
        description="Written into records, as a broker's proxy does.",
    )
    message_body_max: ByteSize = Field(
        ByteSize(4 << 20), ge=1, description="Largest body that clients may send."
    )
    sending_bytes_max: ByteSize = Field(
        ByteSize(128 << 20),
        ge=1,
        description="Messages that wait for the writer; above it sends are refused with TOO_MANY_REQUESTS.",
    )
    sessions_max: int = Field(
        20_000, ge=1, description="Clients remembered; above it the one silent for longest is not."
    )
    session_timeout_seconds: float = Field(
        120.0, gt=0, description="A client that is silent for this long has gone."
    )
    push_lease_ms: int = Field(
        60_000, ge=1_000, description="Lease of a push consumer's message, renewed while it lives."
    )
    writer_endpoint: str = Field(
        "",
        description="HOST:PORT where RocketMQ's clients reach the writer. With reader_endpoint: routes are "
        "split, clients that honour it send to the writer and receive from the reader. Empty: all "
        "through the gateway.",
    )
    reader_endpoint: str = Field(
        "", description="HOST:PORT where RocketMQ's clients reach the reader."
    )

    @field_validator("writer_endpoint", "reader_endpoint")
    @classmethod
    def _nothing_or_an_endpoint(cls, value: str) -> str:
        if value and (fix := address_problem(value)):
            raise ValueError(f"{value!r} is not HOST:PORT; {fix}")
        return value

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


class TlsSettings(MessagingSettings):
    """What a port with TLS shows."""

    tls_certificate: Path | None = Field(None, description="PEM file: certificate and its chain.")
    tls_key: Path | None = Field(None, description="PEM file: the certificate's private key.")

    def _check_tls_files(self) -> None:
        chain = _file("--tls-certificate", self.tls_certificate)
        key = _file("--tls-key", self.tls_key)
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


class GatewayPlaceSettings(TlsSettings):
    """Where RocketMQ's clients find the gateway, of a process that has other ports too."""

    gateway_listen: str = Field(
        "",
        description="HOST:PORT of the gateway, which is a port of the reader; none: it is not served.",
    )
    gateway_tls_listen: str = Field("", description="HOST:PORT of the gateway's TLS.")

    @field_validator("gateway_listen", "gateway_tls_listen")
    @classmethod
    def _nothing_or_host_and_port(cls, value: str) -> str:
        return check_address(value) if value not in ("", NONE) else ""
