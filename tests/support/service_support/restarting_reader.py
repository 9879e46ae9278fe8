"""A reader process that goes and comes back."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

from free_ports import free_address
from real_processes import Running


class Restarting:
    """A reader process that can be killed and started again at the same address."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._stack = ExitStack()

    def __enter__(self) -> Restarting:
        self._start(free_address())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, listen: str) -> None:
        running = Running(
            "services.reader", "--store", str(self._store), "--listen", listen,
            "--drain-grace-seconds", "0.2",
        )  # fmt: skip
        self._running = self._stack.enter_context(running)
        self.address = self._running.wait_serving("reader")[0]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._running.stop(number)

    def start(self) -> None:
        self._start(self.address)
