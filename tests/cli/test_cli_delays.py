"""``penstock pub --delay`` and ``--at``, ``penstock recall`` and ``penstock timers``, against real services."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest
from real_processes import until
from run_cli import Penstock, json_lines

from cli.failures import ExitCode


def bodies(run: Penstock, topic: str) -> list[str]:
    return sorted(row["body"] for row in json_lines(run("sub", topic, "--json")))


def test_messages_come_at_their_time_and_one_is_taken_back(run: Penstock, topic: str) -> None:
    before = json_lines(run("timers", "--json"))[0]
    recalled = json_lines(run("pub", topic, "never", "--delay", "1h", "--json"))[0]
    at = datetime.fromtimestamp(time.time() + 2, UTC).isoformat()
    assert run("pub", topic, "at", "--at", at).exit_code == ExitCode.DONE
    assert run("pub", topic, "after", "--delay", "2s").exit_code == ExitCode.DONE
    assert bodies(run, topic) == []
    counts = json_lines(run("timers", "--json"))[0]
    assert counts["pending"] == before["pending"] + 3
    shown = run("timers").stdout
    assert "wait, the next is due at" in shown and " 0 found delivered already" in shown
    assert counts["repeated"] == 0

    done = run("recall", recalled["recall_handle"], "--topic", topic)
    assert done.exit_code == ExitCode.DONE and "recalled" in done.stdout
    until(lambda: bodies(run, topic) == ["after", "at"])
    after = json_lines(run("timers", "--json"))[0]
    assert after["delivered"] == before["delivered"] + 2


def test_what_cannot_be_is_one_line(run: Penstock, topic: str) -> None:
    refused = run("pub", topic, "x", "--delay", "41d")
    assert refused.exit_code == ExitCode.USAGE and refused.stderr.count("\n") == 1
    refused = run("pub", topic, "x", "--delay", "1s", "--at", "2030-01-01")
    assert refused.exit_code == ExitCode.USAGE and "one of --delay and --at" in refused.stderr
    refused = run("recall", "bm9uc2Vuc2U=")
    assert refused.exit_code == ExitCode.USAGE and "recall_handle" in refused.stderr
    past = run("pub", topic, "now", "--at", "2020-01-01")
    assert past.exit_code == ExitCode.DONE and "delivered at once" in past.stderr
    assert bodies(run, topic) == ["now"]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--at", "15m", "use --delay 15m"),
        ("--at", "", "is not a time"),
        ("--at", "soon", "is not a time"),
        ("--delay", "", "is not a duration"),
    ],
)
def test_what_is_no_time_or_no_duration_stores_nothing(
    run: Penstock, topic: str, option: str, value: str, says: str
) -> None:
    refused = run("pub", topic, "x", option, value)
    assert refused.exit_code == ExitCode.USAGE and says in refused.stderr
    assert "ago" not in refused.stderr
    assert bodies(run, topic) == []


def test_a_handle_that_was_cut_recalls_nothing(run: Penstock, topic: str) -> None:
    """Its line, which a terminal does not break, is the last of what pub prints; due is the one before."""
    shown = run("pub", topic, "kept", "--delay", "1h").stdout.splitlines()
    handle = shown[-1]
    for cut in (handle[:-1], handle[:-4], handle[:-12], handle[:40] + "\n" + handle[40:]):
        refused = run("recall", cut, "--topic", topic)
        assert refused.exit_code == ExitCode.USAGE and "recall_handle" in refused.stderr, cut
    assert run("recall", handle, "--topic", topic).exit_code == ExitCode.DONE
    due = re.search(r"due, at (\S+),", shown[0])
    assert due is not None
    assert 3_590 < datetime.fromisoformat(due[1]).timestamp() - time.time() <= 3_601
