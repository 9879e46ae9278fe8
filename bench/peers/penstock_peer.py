"""Penstock itself: ``penstock serve`` with default settings except addresses and the flush mode."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.peers import generator, software
from bench.peers.cells import Cell
from bench.peers.peer import PYTHON_CLIENTS, START_TIMEOUT_S, Peer, free_port, wait_for_port

FILLED_S: Final = 35.0  # until the writer has filled the page cache of two log files
SERVICES: Final = ("writer", "reader", "indexer")


class PenstockPeer(Peer):
    """A supervisor with writer, reader and indexer."""

    name = "penstock"

    def __init__(self, directory: Path, cell: Cell) -> None:
        super().__init__(directory, cell)
        self.warm_up_s = 5.0 if cell.batch > 1 else FILLED_S
        self._ports = {service: free_port() for service in SERVICES}
        self._services: list[int] = []

    @classmethod
    def prepare(cls) -> str:
        """Build the Go client."""
        software.go_client()
        return version("penstock")

    def start(self) -> None:
        """Start all three services."""
        self.start_again()
        for port in self._ports.values():
            wait_for_port(port, self.processes[-1])
        self._services = self._children()

    def start_again(self) -> None:
        """Start the supervisor and leave it to itself."""
        listen = [
            word
            for service, port in self._ports.items()
            for word in (f"--{service}-listen", f"127.0.0.1:{port}")
        ]
        self.run(
            sys.executable, "-m", "services.supervisor", "--store", self.directory / "store", *listen,
            "--gateway-listen", "none", "--metrics-listen", "127.0.0.1:0",
            "--flush-mode", "sync" if self.is_sync else "async",
        )  # fmt: skip

    def _children(self) -> list[int]:
        threads = Path(f"/proc/{self.processes[-1].pid}/task")
        return [
            int(child)
            for thread in threads.iterdir()
            for child in (thread / "children").read_text().split()
        ]

    def process_ids(self) -> list[int]:
        """Return the supervisor and its three services."""
        return [*super().process_ids(), *self._services]

    def kill(self) -> None:
        """Kill all four processes at once."""
        children = self._children()
        for process_id in [self.processes[-1].pid, *children]:
            os.kill(process_id, signal.SIGKILL)
        self.processes.pop().wait()
        until = time.monotonic() + START_TIMEOUT_S
        while any(Path(f"/proc/{child}").exists() for child in children):
            if time.monotonic() > until:
                raise RuntimeError("services go on after SIGKILL")
            time.sleep(0.002)

    def close(self) -> None:
        """End every process; services whose supervisor has ended stop by themselves."""
        if self.processes and self.processes[-1].poll() is None:
            self.kill()

    def create_topics(self, count: int) -> float:
        """Make topics by the Python client, many a request."""
        wanted = {"operation": "create", "topics": count, **self.arguments}
        return generator.run(self.python_client, wanted)["seconds"]

    @property
    def native_client(self) -> Sequence[object]:
        """A client in Go that makes bare gRPC calls."""
        return [software.go_client(), "peer=penstock"]

    @property
    def python_client(self) -> Sequence[object]:
        """The public client."""
        return [sys.executable, "-m", f"{PYTHON_CLIENTS}.penstock_client"]

    @property
    def arguments(self) -> dict[str, object]:
        """Where the services are."""
        return {service: f"127.0.0.1:{port}" for service, port in self._ports.items()}
