"""Certificates of ports, taken up anew when their files change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from penstock.tls import LOOK_SECONDS, ChangedFiles, authorities, identity
from services import logs
from services.config.settings import ProcessSettings


class PortTls:
    """The certificate, key and client CA of one port. Raises BadTlsFile when it is made."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        paths = [path for path in (cert, key, client_ca) if path is not None]
        self._files = ChangedFiles(paths, self._read)
        self._log = logs.get_logger()
        self._next: Any = None

    @classmethod
    def of(cls, settings: ProcessSettings) -> PortTls | None:
        """Return that of the settings, None for plaintext."""
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        return cls(settings.tls_cert, settings.tls_key, settings.client_ca)

    def credentials(self) -> grpc.ServerCredentials:
        """Return what a port is opened with: its handshakes take the files that ``watch`` found last."""
        return grpc.dynamic_ssl_server_credentials(
            self._files.value, self._take, require_client_authentication=self._client_ca is not None
        )

    async def watch(self) -> None:
        """Take up files that have changed, for ever; the old ones stay till the new ones are good."""
        said = "certificate not taken up, the old one stays"
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._files.look(lambda problem: self._log.error(said, problem=problem)):
                self._next = self._files.value
                expires_at = identity(self._cert, self._key).expires_at.isoformat()
                self._log.info("certificate taken up", file=str(self._cert), expires_at=expires_at)

    def _read(self) -> Any:
        own = identity(self._cert, self._key)
        client_ca = None if self._client_ca is None else authorities(self._client_ca)
        return grpc.ssl_server_certificate_configuration([(own.key, own.chain)], client_ca)

    def _take(self) -> Any:
        """Return what is new since the last handshake, else None; in a thread of gRPC's."""
        new, self._next = self._next, None
        return new
