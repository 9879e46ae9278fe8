"""An authority of a test's own, and files of certificates that it has signed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import trustme

from penstock.tls import TLS


class Files(NamedTuple):
    """A certificate and its private key."""

    cert: Path
    key: Path


class Certificates:
    """Writes files into a folder; ``server`` is for localhost and 127.0.0.1, ``client`` for alice."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)
        self.server = self.issue("server")
        self.client = self.issue("alice")

    def issue(self, name: str, *hosts: str, expired: bool = False) -> Files:
        """Sign a certificate for some hosts, localhost without any; one of that name is replaced."""
        expires_at = datetime.now(UTC) - timedelta(days=1) if expired else None
        signed = self._authority.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")), common_name=name, not_after=expires_at
        )
        files = Files(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        signed.private_key_pem.write_to_path(files.key)
        files.cert.write_bytes(b"".join(each.bytes() for each in signed.cert_chain_pems))
        return files

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a service: its ports serve TLS, and it calls others with it."""
        return {
            "tls_cert": self.server.cert,
            "tls_key": self.server.key,
            "tls_ca": str(self.ca),
        }

    @property
    def mutual(self) -> dict[str, Any]:
        """The same where clients show a certificate of the authority."""
        return self.settings | {"tls_client_ca": self.ca}

    @property
    def one_sided(self) -> TLS:
        """TLS of a client without a certificate."""
        return TLS(ca=self.ca)

    @property
    def alice(self) -> TLS:
        """TLS of a client with one."""
        return TLS(ca=self.ca, cert=self.client.cert, key=self.client.key)

    def channel(self, address: str, tls: TLS | None = None) -> grpc.Channel:
        """Return a channel, one-sided if nothing else is said."""
        credentials = (tls or self.one_sided).credentials()
        return grpc.secure_channel(address, credentials, [("grpc.enable_http_proxy", 0)])
