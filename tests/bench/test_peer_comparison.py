"""The comparison with peers: ratios point the right way, and a client's failures are no results."""

from __future__ import annotations

import sys

import pytest

from bench.peers import generator
from bench.peers.cells import Cell
from bench.peers.comparison import compare, markdown
from bench.peers.generator import LoadFailed

PRODUCE = Cell(name="produce", operation="produce")
RESTART = Cell(name="restart", operation="restart")


def client(*lines: str) -> list[object]:
    return [sys.executable, "-c", "\n".join(lines)]


def test_a_ratio_says_how_many_times_better_penstock_is() -> None:
    measured = {
        ("penstock", "produce"): [{"messages_per_s": 300.0}, {"messages_per_s": 100.0}],
        ("kafka", "produce"): [{"messages_per_s": 100.0}],
        ("penstock", "restart"): [{"restart_s": 2.0}],
        ("kafka", "restart"): [{"restart_s": 1.0}],
    }
    rates, restarts = compare([PRODUCE, RESTART], measured)
    assert rates.ratio("kafka") == 2.0
    assert restarts.ratio("kafka") == 0.5
    assert rates.ratio("nats") is None
    table = markdown([rates, restarts], ["penstock", "kafka", "nats"])
    assert "| produce, msg/s | 200 | 100 (2 x) | - |" in table
    assert "| restart, s | 2 | 1 (0.5 x) | - |" in table


def test_what_a_client_prints_is_the_result() -> None:
    result = '@result {"messages": 30, "seconds": 2, "errors": 0, "first_error": ""}'
    measured = generator.run(client("print('@begin')", "print('@end')", f"print('{result}')"), {})
    assert measured["messages_per_s"] == 15


@pytest.mark.parametrize(
    "result",
    [
        '@result {"messages": 30, "seconds": 2, "errors": 1, "first_error": "refused"}',
        '@result {"messages": 30, "seconds": 2, "errors": 0, "missing": 1}',
        "nothing",
    ],
)
def test_failed_requests_and_missing_messages_are_no_result(result: str) -> None:
    with pytest.raises(LoadFailed):
        generator.run(client(f"print('{result}')"), {})
