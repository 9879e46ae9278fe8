"""``penstock retention``, and read and write queues of ``penstock topic update``, against real services."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from run_cli import Penstock, json_lines, small_services

from cli.failures import ExitCode
from cli.local_services import LocalServices


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServices]:
    """Of their own: a message of another test that is still delayed would hold the log files."""
    with small_services(tmp_path_factory.mktemp("cli-retention")) as started:
        yield started


def test_retention_shows_what_goes_and_deletes_it_when_asked(run: Penstock, topic: str) -> None:
    """Retention is off: files never go, unless `--now` names an age; the newest stays."""
    for _ in range(3):
        run("pub", topic, "x" * 700_000, "--queue", 0)
    run("pub", topic, "last", "--queue", 0)
    shown = json_lines(run("retention", "--json"))[0]
    assert shown["retention_ms"] == 0 and len(shown["files"]) >= 3
    assert [file["expires_ms"] for file in shown["files"]] == [0] * len(shown["files"])
    assert {"flush", "dispatch", "checkpoint"} <= shown["holds"].keys()
    assert "nothing is deleted" in run("retention").stdout
    for answer in ([], ["--yes"]):
        refused = run("retention", "--now", *answer)  # nobody is asked what is refused anyway
        assert refused.exit_code == ExitCode.USAGE and "--older-than-hours" in refused.stderr
        assert "older than 0 hours?" not in refused.stdout

    asked = run("retention", "--now", "--older-than-hours", 0, stdin="n\n")
    assert asked.exit_code == ExitCode.FAILED and "older than 0 hours?" in asked.stdout
    assert run("retention", "--older-than-hours", 5).exit_code == ExitCode.USAGE  # without --now

    kept = json_lines(run("retention", "--now", "--older-than-hours", 5, "--yes", "--json"))[0]

    assert kept["min_commit_offset"] == shown["min_commit_offset"]
    until = time.monotonic() + 60
    while True:  # what was just stored is held until it is flushed, indexed and noted, some seconds
        left = json_lines(run("retention", "--now", "--older-than-hours", 0, "--yes", "--json"))[0]
        if len(left["files"]) == 1 or time.monotonic() > until:
            break
    [newest] = left["files"]
    assert newest["is_newest"] and left["min_commit_offset"] == newest["start_offset"]
    assert left["deleted_file_count"] == len(shown["files"]) - 1
    rows = json_lines(run("sub", topic, "--queue", 0, "--json"))
    assert [row["body"] for row in rows][-1] == "last"


def test_read_queues_go_after_write_queues_and_when_they_are_read(
    run: Penstock, topic: str
) -> None:
    """The second step names group, number and queue; --force prints what is lost and does it."""
    run("pub", topic, "a", "--queue", 0)
    run("pub", topic, "b", "--queue", 1)
    refused = run("topic", "update", topic, "--read-queues", 1)
    assert refused.exit_code == ExitCode.REFUSED and "lower the write queues" in refused.stderr
    [changed] = json_lines(run("topic", "update", topic, "--write-queues", 1, "--json"))
    assert (changed["write_queues"], changed["read_queues"]) == (1, 2)
    assert run("pub", topic, "c", "--queue", 1).exit_code == ExitCode.USAGE
    run("sub", topic, "--queue", 0, "--group", f"{topic}-g", "--json")
    refused = run("topic", "update", topic, "--read-queues", 1)
    assert refused.exit_code == ExitCode.REFUSED
    assert f"group '{topic}-g' has 1 to read in queue 1" in refused.stderr

    forced = run("topic", "update", topic, "--read-queues", 1, "--force", "--json")

    assert "has 1 to read in queue 1" in forced.stderr
    assert json_lines(forced)[0]["read_queues"] == 1
    [described] = json_lines(run("topic", "describe", topic, "--json"))
    assert described["perm"] == 6
