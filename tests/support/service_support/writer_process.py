"""A real writer process on an address of its own, killed and started again at will."""

from __future__ import annotations

from pathlib import Path

from free_ports import free_address
from real_processes import SMALL_STORE, Running

from penstock import Client


class WriterProcess:
    """``penstock`` writer over ``store``; the same address whenever it runs."""

    def __init__(self, store: Path, *flags: str, module: str = "services.writer") -> None:
        self.store = store
        self.address = free_address()
        self._flags = flags
        self._module = module
        self._running: Running | None = None

    def start(self) -> WriterProcess:
        self._running = Running(
            self._module, "--store", str(self.store), "--listen", self.address, *SMALL_STORE,
            *self._flags,
        )  # fmt: skip
        self._running.__enter__()
        self._running.wait_serving("writer")
        return self

    def kill(self) -> None:
        assert self._running is not None
        self._running.process.kill()
        self._running.process.wait(20)
        self._running.__exit__()
        self._running = None

    def stop(self) -> None:
        if self._running is not None:
            self._running.__exit__()
            self._running = None

    def client(self, **options: float) -> Client:
        return Client(writer=self.address, **options)  # type: ignore[arg-type]

    def __enter__(self) -> WriterProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
