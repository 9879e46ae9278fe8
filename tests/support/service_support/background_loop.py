"""An event loop in a thread of its own, for tests that talk to an asyncio server synchronously."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines in its thread; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> BackgroundLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 30) -> T:
        """Run a coroutine to its end and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def call(self, function: Callable[[], T]) -> T:
        """Run a plain function on the loop and return its result."""

        async def run() -> T:
            return function()

        return self.run(run())

    async def _cancel_all(self) -> None:
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class BackgroundService:
    """A service's whole ``serve`` coroutine on a background loop; a context manager.

    ``stop`` drains it as a signal would.
    """

    def __init__(self, serve: Callable[..., Coroutine[Any, Any, None]], settings: Any) -> None:
        self._serve = serve
        self._settings = settings
        self._background = BackgroundLoop()
        self.address = ""
        self.gateway_address = ""  # of a reader that has one
        self.with_tls: tuple[str, ...] = ()  # the port of the latter, in words

    def __enter__(self) -> BackgroundService:
        self._background.__enter__()
        ready = threading.Event()

        def on_ready(address: str, gateway_address: str = "", *with_tls: str) -> None:
            self.address, self.gateway_address, self.with_tls = address, gateway_address, with_tls
            ready.set()

        async def run() -> None:
            self._stop = asyncio.Event()
            try:
                await self._serve(self._settings, self._stop, on_ready)
            finally:
                ready.set()

        self._running = asyncio.run_coroutine_threadsafe(run(), self._background._loop)
        assert ready.wait(60)
        if not self.address:
            self._running.result(0)
        return self

    def stop(self, timeout_s: float = 30) -> None:
        """Drain and wait for the end."""
        if self.address:
            self._background.call(self._stop.set)
            self._running.result(timeout_s)
            self.address = ""

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._background.__exit__()
