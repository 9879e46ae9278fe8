"""A real process of one service on an address of its own, killed and started again at will."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from free_ports import free_address
from real_processes import SMALL_STORE, Running

from penstock import Client


class ServiceProcess:
    """A service with ``flags``; the same address whenever it runs."""

    service = ""

    def __init__(self, *flags: str, module: str = "") -> None:
        self.address = free_address()
        self._command = (
            module or f"services.{self.service}", "--listen", self.address, *flags
        )  # fmt: skip
        self._running: Running | None = None

    def start(self) -> None:
        self._running = Running(*self._command).__enter__()
        self._running.wait_serving(self.service)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self._running is not None
        self._running.stop(number)
        self.stop()

    def stop(self) -> None:
        if self._running is not None:
            self._running.__exit__()
            self._running = None

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class WriterProcess(ServiceProcess):
    """The writer over ``store``, with small files."""

    service = "writer"

    def __init__(self, store: Path, *flags: str, module: str = "") -> None:
        self.store = store
        super().__init__("--store", str(store), *SMALL_STORE, *flags, module=module)

    def client(self, **options: Any) -> Client:
        return Client(writer=self.address, **options)


class ReaderProcess(ServiceProcess):
    """The reader of ``store``."""

    service = "reader"

    def __init__(self, store: Path) -> None:
        super().__init__("--store", str(store), "--drain-grace-seconds", "0.2")


class GatewayProcess(ServiceProcess):
    """A gateway of its own before a writer and a reader."""

    service = "gateway"

    def __init__(self, writer: str, reader: str) -> None:
        super().__init__("--writer-address", writer, "--reader-address", reader)
