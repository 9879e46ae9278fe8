"""What each peer is to the comparison: a server on a fresh directory, and the commands of its clients."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from bench.peers import generator, software
from bench.peers.cells import Cell

START_TIMEOUT_S: Final = 180.0
PYTHON_CLIENTS: Final = "bench.peers.clients.python"


class Peer(ABC):
    """One server, or a group of processes, for one cell. Use ``start`` once, and ``close`` at the end."""

    name: ClassVar[str]
    warm_up_s: float = 3.0
    has_python_client: ClassVar[bool] = True
    is_store: ClassVar[bool] = True

    def __init__(self, directory: Path, cell: Cell) -> None:
        self.directory = directory
        self.cell = cell
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    @classmethod
    def measures(cls, cell: Cell) -> bool:
        """Return whether a cell means something on this peer."""
        if cell.client == "python" and not cls.has_python_client:
            return False
        return cls.is_store or not cell.is_of_store

    @classmethod
    @abstractmethod
    def prepare(cls) -> str:
        """Fetch and compile what is needed; return the version. Raises ToolMissing."""

    def start(self) -> None:
        """Start the server and return when it accepts connections."""
        self.start_again()
        wait_for_port(self.port, self.processes[-1])

    @abstractmethod
    def start_again(self) -> None:
        """Start the server that ``kill`` has ended, without waiting for it."""

    @property
    @abstractmethod
    def native_client(self) -> Sequence[object]:
        """The command of its fastest client."""

    @property
    def python_client(self) -> Sequence[object]:
        """The command of its client for Python."""
        return [software.python_with_clients(), "-m", f"{PYTHON_CLIENTS}.{self.name}_client"]

    @property
    def client(self) -> Sequence[object]:
        return self.python_client if self.cell.client == "python" else self.native_client

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def arguments(self) -> dict[str, object]:
        """Where the server is, for its clients."""
        return {"address": self.address}

    @property
    def is_sync(self) -> bool:
        return self.cell.durability == "sync"

    def create_topics(self, count: int) -> float:
        """Make topics of one queue each; return the seconds it took."""
        wanted = {"operation": "create", "topics": count, **self.arguments}
        return generator.run(self.native_client, wanted)["seconds"]

    def process_ids(self) -> list[int]:
        """Return the processes of the servers."""
        return [process.pid for process in self.processes]

    def run(self, *command: object) -> subprocess.Popen[bytes]:
        """Start a server; its output goes to a file of the directory."""
        with (self.directory / "servers.log").open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command], stdout=log, stderr=log, cwd=self.directory
            )
        self.processes.append(process)
        return process

    def kill(self) -> None:
        """Kill what ``start_again`` starts, and wait until it is gone."""
        process = self.processes.pop()
        process.kill()
        process.wait()

    def close(self) -> None:
        """End every process."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.processes = []


def free_port() -> int:
    """Return a port that nothing listens on, and that the system gives nobody who asks for any."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when something listens on a port. Raises RuntimeError when the process ends, or after three minutes."""
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}; see its log")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"the server does not listen after {START_TIMEOUT_S:.0f} s")
