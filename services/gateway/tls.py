"""The certificate that the gateway shows on its port with TLS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from services.settings import GatewaySettings


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a certificate chain and its key; both None where there is no TLS."""

    certificate: Path | None
    key: Path | None

    @classmethod
    def of(cls, settings: GatewaySettings) -> TlsFiles:
        """Return the files. Raises ValueError if there is a port for TLS and a file is missing."""
        files = cls(settings.tls_certificate, settings.tls_key)
        if settings.tls_listen:
            for flag, path in (
                ("--tls-certificate", files.certificate),
                ("--tls-key", files.key),
            ):
                if path is None:
                    raise ValueError(f"{flag}: is needed with --tls-listen")
                if not path.is_file():
                    raise ValueError(f"{flag}: {path} is not a file")
        return files

    def credentials(self) -> grpc.ServerCredentials:
        """Read the files; a new certificate takes a restart."""
        assert self.certificate is not None and self.key is not None
        return grpc.ssl_server_credentials([(self.key.read_bytes(), self.certificate.read_bytes())])
