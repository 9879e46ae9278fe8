"""The services as real processes, as a user or a container starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SMALL_STORE = [
    "--commit-log-file-size", "8MiB", "--consume-queue-file-size", "20000",
    "--index-slot-count", "1000", "--index-entry-count", "4000",
]  # fmt: skip


class Running:
    """A process whose output is collected; a context manager that ends it."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._arguments = arguments
        self._environment = environment
        self.output: list[str] = []

    def __enter__(self) -> Running:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self._arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(self._environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line.rstrip())

    def __exit__(
        self, _kind: object = None, error: BaseException | None = None, _traceback: object = None
    ) -> None:
        if error is not None:  # what became of the process is half of why a test failed
            code = self.process.poll()
            error.add_note(f"{self._arguments[0]}, exit code {code}:\n{self.text()[-2000:]}")
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        self._reader.join(10)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(90)
        self._reader.join(10)
        return code

    def text(self) -> str:
        return "\n".join(self.output)

    def serving(self, service: str) -> list[tuple[str, int]]:
        """Addresses that a service has announced so far, each with its process id (0: ours)."""
        found = re.findall(rf"{service} serves on (\S+)(?: \(pid (\d+)\))?", self.text())
        return [(address, int(process_id or 0)) for address, process_id in found]

    def wait_serving(self, service: str, times: int = 1) -> tuple[str, int]:
        """Wait until a service has announced itself so often; return its address and pid."""
        until(lambda: len(self.serving(service)) >= times or self.process.poll() is not None, 60)
        announced = self.serving(service)
        assert len(announced) >= times, self.text()
        return announced[-1]


def one_service(service: str, store: Path, *flags: str) -> Running:
    return Running(f"services.{service}", "--store", str(store), "--listen", "127.0.0.1:0", *flags)


def supervisor(store: Path, *flags: str, **environment: str) -> Running:
    return Running(
        "services.supervisor", "--store", str(store),
        "--writer-listen", "127.0.0.1:0", "--reader-listen", "127.0.0.1:0",
        "--indexer-listen", "127.0.0.1:0", "--gateway-listen", "none", "--metrics-listen", "none", *SMALL_STORE, *flags,
        environment=environment,
    )  # fmt: skip


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def health(address: str) -> int:
    """Return the status that a writer gives of itself."""
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service="penstock.v1.Writer")
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)
