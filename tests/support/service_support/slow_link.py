"""A TCP proxy that makes a server of this machine look far away."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf

from services.testing import BackgroundLoop

_PIECE = 1 << 16


class SlowLink:
    """Brings every byte over ``delay_s`` late, each way, at full rate; a context manager.

    A connection stands as late as one over such a link does: after a round trip. On the first
    ``mute_count`` connections what the server says is lost.
    """

    def __init__(self, target: str, delay_s: float) -> None:
        self._target = target
        self._delay_s = delay_s
        self._background = BackgroundLoop()
        self._server: asyncio.Server | None = None
        self.address = ""
        self.connection_count = 0
        self.mute_count: float = 0

    def __enter__(self) -> SlowLink:
        self._background.__enter__()
        self._background.run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._background.call(self._server.close)
        self._background.__exit__()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        number = self.connection_count
        try:
            await asyncio.sleep(2 * self._delay_s)  # SYN there, and its answer back
            host, _, port = self._target.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(
                self._carry(reader, far_writer), self._carry(far_reader, writer, number)
            )
        except (OSError, asyncio.CancelledError):
            writer.close()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, number: float = inf
    ) -> None:
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def deliver() -> None:
            with suppress(OSError):
                while True:
                    due, data = await on_the_way.get()
                    await asyncio.sleep(due - clock())
                    if not data:
                        break
                    target.write(data)
                    await target.drain()
            target.close()

        delivering = asyncio.ensure_future(deliver())
        data = b"-"
        while data:
            try:
                data = await source.read(_PIECE)
            except OSError:
                data = b""
            if data and number <= self.mute_count:
                continue
            on_the_way.put_nowait((clock() + self._delay_s, data))
        await delivering
