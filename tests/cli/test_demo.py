"""`make demo`: its rows, orders, reminders and transactions, and how it ends when it is interrupted."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from cli.demo import data as demo_data
from cli.demo import later, orders
from cli.demo.demo import Demo
from cli.demo.later import show_later
from cli.failures import ExitCode
from penstock import Client
from services.local_services import LocalServices

ROOT = Path(__file__).resolve().parents[2]


def test_the_rows_are_all_there_with_keys_tag_and_queue() -> None:
    """336,776 rows as JSON; each has its carrier+flight as key, its origin as tag."""
    flights = demo_data.load()
    row = json.loads(flights.bodies[0])
    of_queues = [len(flights.rows_of_queue(queue)) for queue in range(demo_data.QUEUE_COUNT)]

    assert len(flights) == 336_776
    assert flights.keys[0] == (row["tailnum"], f"{row['carrier']}{row['flight']}")
    assert flights.tags[0] == row["origin"]
    assert sum(of_queues) == len(flights)
    assert min(of_queues) > 0
    assert len(flights.rows_with_key("N14228")) == 111


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C stops the services, removes their files and is exit code 130, without a traceback."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "cli.demo", "--no-spark"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while not list(tmp_path.glob("penstock-demo-*/store/commitlog/*")):
            assert demo.poll() is None, demo.stdout and demo.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=60)
    finally:
        demo.kill()

    assert demo.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def told(addresses: Mapping[str, str]) -> tuple[int, str]:
    """Tell the story of the orders; return how many of its checks failed, and what it printed."""
    output = io.StringIO()
    demo = Demo(Console(file=output, width=200))
    with Client(**addresses) as client:
        orders.show_orders(demo, client, addresses)
    return demo.failures, output.getvalue()


@pytest.fixture(name="story")
def _story(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """The orders of a topic and group of their own, and not so many."""
    for name, value in {
        "TOPIC": f"orders-{topic}", "GROUP": f"shop-{topic}", "ORDER_COUNT": 200,
        "BACKOFF_MS": (50, 100),
    }.items():  # fmt: skip
        monkeypatch.setattr(orders, name, value)


@pytest.mark.usefixtures("story")
def test_orders_are_handled_through_failures_and_dead_letters(services: LocalServices) -> None:
    failures, output = told(services.addresses)

    assert not failures, output
    assert "198 of 200 orders are handled, 20 of them at the second attempt" in output
    assert "2 orders are dead letters, 0 are left" in output
    assert "2 messages sent again" in output
    assert "200 of 200 orders are handled, each once; 24 retries" in output


@pytest.fixture(name="reminded")
def _reminded(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """The reminders and purchases of topics of their own, and not so many."""
    for name, value in {
        "REMINDERS": f"reminders-{topic}", "PURCHASES": f"purchases-{topic}",
        "PARCELS": f"parcels-{topic}", "REMINDER_COUNT": 30, "PURCHASE_COUNT": 20,
    }.items():  # fmt: skip
        monkeypatch.setattr(later, name, value)


def told_of_later(addresses: Mapping[str, str]) -> tuple[int, str]:
    """Tell the story of reminders and transactions; as ``told``."""
    output = io.StringIO()
    demo = Demo(Console(file=output, width=200))
    with Client(**addresses) as client:
        show_later(demo, client)
    return demo.failures, output.getvalue()


@pytest.mark.usefixtures("reminded")
def test_reminders_come_later_and_purchases_are_those_of_the_database(
    services: LocalServices,
) -> None:
    failures, output = told_of_later(services.addresses)

    assert not failures, output
    assert "27 of 30 have come" in output
    assert "0 were early" in output
    assert "18 rows, 2 refused; 18 purchases and 18 parcels are seen" in output
    assert "left 4 open; the writer asked about 4: now 20 rows, 20 purchases, 20 parcels" in output
