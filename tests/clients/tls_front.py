"""A proxy that ends TLS in front of plaintext ports, as a deployment may have one."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path


class TlsFront:
    """Forwards what comes to ports with TLS, each to its plaintext address; a context manager."""

    def __init__(self, certificate: Path, key: Path, targets: Mapping[int, str]) -> None:
        """Serve each port of ``targets`` on 127.0.0.1 for its HOST:PORT."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._context.set_alpn_protocols(["h2"])
        self._targets = targets
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> TlsFront:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _listen(self) -> None:
        for port, target in self._targets.items():
            server = await asyncio.start_server(
                lambda reader, writer, target=target: self._forward(reader, writer, target),
                "127.0.0.1", port, ssl=self._context,
            )  # fmt: skip
            self._servers.append(server)

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str
    ) -> None:
        host, _, port = target.rpartition(":")
        with contextlib.suppress(OSError):
            behind, before = await asyncio.open_connection(host, int(port))
            await asyncio.gather(_copy(reader, before), _copy(behind, writer))
        writer.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()
