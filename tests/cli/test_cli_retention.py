"""``penstock retention``, and read and write queues of ``penstock topic update``, against real services."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from run_cli import Penstock, json_lines, small_services

from cli.failures import ExitCode
from cli.retention import _age_text
from services.local_services import LocalServices


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
        assert "older than" not in refused.stdout

    for stdin in ("n\n", ""):
        asked = run("retention", "--now", "--older-than-hours", 0, stdin=stdin)
        assert asked.exit_code == ExitCode.INTERRUPTED and "older than 0 s: " in asked.stdout
        assert re.search(
            r": \d files?, \d+(\.\d [KMG]i)? ?B(; \d files? held by [a-z, ]+)?\? ", asked.stdout
        )
        assert asked.stderr == "penstock: not confirmed: nothing was done\n"
    assert run("retention", "--older-than-hours", 5).exit_code == ExitCode.USAGE  # without --now

    nothing = run("retention", "--now", "--older-than-hours", 5, "--yes").stdout
    assert "0 files deleted, 0 B; none but the newest can be older than 5 hours" in nothing
    kept = json_lines(run("retention", "--now", "--older-than-hours", 5, "--yes", "--json"))[0]
    assert (kept["deleted_now_file_count"], kept["deleted_now_bytes"]) == (0, 0)

    assert kept["min_commit_offset"] == shown["min_commit_offset"]
    deleted = 0
    until = time.monotonic() + 60
    while True:  # what was just stored is held until it is flushed, indexed and noted, some seconds
        left = json_lines(run("retention", "--now", "--older-than-hours", 0, "--yes", "--json"))[0]
        deleted += left["deleted_now_file_count"]
        if len(left["files"]) == 1 or time.monotonic() > until:
            break
    [newest] = left["files"]
    assert newest["is_newest"] and left["min_commit_offset"] == newest["start_offset"]
    assert deleted == left["deleted_file_count"] == len(shown["files"]) - 1
    rows = json_lines(run("sub", topic, "--queue", 0, "--json"))
    assert [row["body"] for row in rows][-1] == "last"


def test_what_holds_files_is_said(run: Penstock, topic: str) -> None:
    """A message that is delayed holds the log from its record on."""
    sent = json_lines(run("pub", topic, "later", "--delay", "1h", "--json"))[0]
    for _ in range(3):
        run("pub", topic, "x" * 700_000, "--queue", 0)
    asked = run("retention", "--now", "--older-than-hours", 0, stdin="n\n").stdout
    assert "0 files, 0 B; " in asked and "timers" in asked
    told = run("retention", "--now", "--older-than-hours", 0, "--yes").stdout
    assert re.search(r"^0 files deleted, 0 B; \d files? held by [a-z, ]*timers;", told), told
    run("recall", sent["recall_handle"])


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [(0, "0 s"), (20_000, "20 s"), (60_000, "1 minute"), (90_000, "90 s"), (5_400_000, "90 minutes"),
     (18_000_000, "5 hours"), (86_400_000, "1 day"), (259_200_000, "3 days")],
)  # fmt: skip
def test_an_age_has_a_unit_that_fits(age_ms: int, text: str) -> None:
    assert _age_text(age_ms) == text


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
    assert "--force" in refused.stderr and "stays on the disk" in refused.stderr

    forced = run("topic", "update", topic, "--read-queues", 1, "--force", "--json")

    not_read = f"group '{topic}-g' has 1 to read in queue 1"
    assert forced.stderr == f"penstock: not read until the read queues are back: {not_read}\n"
    [changed] = json_lines(forced)
    assert (changed["read_queues"], changed["not_read"]) == (1, not_read)
    [described] = json_lines(run("topic", "describe", topic, "--json"))
    assert described["perm"] == 6
    for queue_id in (1, 99):
        none = run("sub", topic, "--queue", queue_id)
        assert none.exit_code == ExitCode.USAGE
        assert f"queue {queue_id} is not among the 1 read queues" in none.stderr
    assert run("topic", "update", topic, "--read-queues", 2).exit_code == ExitCode.DONE
    assert "b" in run("sub", topic, "--queue", 1).stdout


def test_an_update_answers_what_a_topic_is_like_then(run: Penstock, topic: str) -> None:
    changed = run("topic", "update", topic, "--perm", 4, "--attribute", "message.type=FIFO").stdout
    assert changed == f"topic {topic} with 2 queues; read; message.type=FIFO\n"
    run("topic", "update", topic, "--write-queues", 1, "--perm", 6)
    shown = run("topic", "describe", topic).stdout
    assert f"{topic}: 1 queue to write and 2 to read; read, write; message.type=FIFO" in shown
