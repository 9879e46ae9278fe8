"""Whoever reads what a supervisor or a service prints may go away, or was never there: messages go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_address
from real_processes import SMALL_STORE, until
from steps_to_try import cases_to_try

from penstock import Client

SERVICES = ("writer", "reader", "indexer")  # the reader has the gateway's port
CLOSED = {"nothing": "", "stderr": "2>&-", "all three": "<&- >&- 2>&-"}


class Served:
    """``penstock serve`` of a store, whose output goes where the test says."""

    def __init__(self, store: Path, **streams: Any) -> None:
        self.addresses = {name: free_address() for name in (*SERVICES, "gateway", "metrics")}
        closed = CLOSED[streams.pop("closed", "nothing")]
        command = [sys.executable, "-m", "cli.main", "serve", "--store", str(store), *SMALL_STORE]
        for name, address in self.addresses.items():
            command += [f"--{name}-listen", address]
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *command], **streams
        )
        self.client = Client(
            writer=self.addresses["writer"],
            reader=self.addresses["reader"],
            indexer=self.addresses["indexer"],
            timeout_s=120,
        )

    def pid_of(self, service: str) -> int:
        """Return the process id of a running service, 0 if there is none."""
        own = self.process.pid
        for child in Path(f"/proc/{own}/task/{own}/children").read_text().split():
            if f"services.{service}" in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                return int(child)
        return 0

    def kill(self, service: str) -> None:
        """Kill a service, and wait until another process of it is there."""
        killed = self.pid_of(service)
        os.kill(killed, signal.SIGKILL)
        until(
            lambda: self.process.poll() is not None or self.pid_of(service) not in (0, killed), 60
        )

    def check(self, number: int) -> None:
        """Send a message, and find it through each of the services."""
        key = f"key-{number}"
        self.client.produce("t", b"%d" % number, keys=[key])
        until(lambda: [r.body for r in self.client.query_by_key("t", key)] == [b"%d" % number], 60)


@contextmanager
def served(store: Path, **streams: Any) -> Iterator[Served]:
    each = Served(store, **streams)
    try:
        each.client.wait_ready(120)
        each.client.create_topic("t", queues=1)
        yield each
    finally:
        each.client.close()
        each.process.kill()
        each.process.wait(30)


def goes_on(each: Served) -> None:
    for number, service in enumerate(cases_to_try(SERVICES)):
        each.kill(service)
        each.check(number)
    each.process.send_signal(signal.SIGTERM)
    assert each.process.wait(90) == 0


@pytest.mark.parametrize("unread", cases_to_try(["stdout", "stderr"]))
def test_services_are_started_again_though_nobody_reads_what_serve_prints(
    tmp_path: Path, unread: str
) -> None:
    ends = {name: os.pipe() for name in ("stdout", "stderr")}
    with served(tmp_path / "store", **{name: end for name, (_, end) in ends.items()}) as each:
        for name, (read_end, write_end) in ends.items():
            os.close(write_end)
            if name == unread:
                os.close(read_end)
        goes_on(each)
