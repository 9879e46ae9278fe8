"""The comparison with peers: ratios point the right way, and a client's failures are no results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.peers import generator, software
from bench.peers.__main__ import PEERS
from bench.peers.cells import CELLS, Cell
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


def test_a_client_that_waits_for_a_restart_is_told_of_it() -> None:
    restarted = []
    lines = ["print('@ready', flush=True)", "input()", "print('@acknowledged 12.5')"]
    measured = generator.run(client(*lines), {}, restart=lambda: restarted.append(True))
    assert measured == {"acknowledged_at": 12.5}
    assert restarted == [True]


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(software.ToolMissing, match="apt-get install redis-server"):
        software.require("redis-server", "redis-server")


def test_every_peer_has_a_client_of_its_own_for_python_or_says_that_it_has_none() -> None:
    folder = software.CLIENTS / "python"
    for kind in PEERS:
        assert (folder / f"{kind.name}_client.py").exists() == kind.has_python_client
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert Path(generator.ROOT, "bench", "peers") == Path(software.__file__).parent
