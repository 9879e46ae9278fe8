"""Drivers killed at seeded points while they stream: every message comes once, and a batch is always the same."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from spark_reads import put
from stream_driver import POINTS, run_driver

from storage import MessageStore

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("PENSTOCK_STREAM_KILLS", "24"))
KILLS_A_STORE = 6
KILLED = -9


def ledger_rows(ledger: Path) -> list[tuple[str, int, int]]:
    """Rows of all batches; every attempt at a batch must have read the same."""
    rows: list[tuple[str, int, int]] = []
    for path in sorted(ledger.glob("batch-*.json")):
        number = path.stem.split("-")[1]
        text = path.read_text()
        for attempt in ledger.glob(f"attempt-{number}-*.json"):
            assert attempt.read_text() == text, f"batch {number} was not the same again"
        rows += [(topic, queue_id, offset) for topic, queue_id, offset in json.loads(text)]
    return rows


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(-(-KILLS // KILLS_A_STORE)))
def test_no_row_is_lost_or_doubled_by_killed_drivers(
    live: MessageStore, tmp_path: Path, seed: int
) -> None:
    """Messages and topics come between the kills; caps cut the batches; both kinds of offsets."""
    rng = random.Random(seed)
    options: dict[str, Any] = {"maxOffsetsPerTrigger": "25", "startingOffsets": "earliest"}
    if seed % 3:
        options["subscribePattern"] = ".*"
    if seed % 2:
        options["maxBytesPerTrigger"] = "4k"
    counts: dict[tuple[str, int], int] = {}
    given = {
        "store": str(tmp_path / "s"), "checkpoint": str(tmp_path / "c"),
        "ledger": str(tmp_path / "ledger"), "options": options,
    }  # fmt: skip

    def write(least: int) -> None:
        while least > 0:
            key = rng.choice(topics)
            count = rng.randrange(1, 30)
            put(live, *key, count)
            counts[key] = counts.get(key, 0) + count
            least -= count

    topics = [("t", queue_id) for queue_id in range(3)]
    for kill in range(KILLS_A_STORE):
        if kill in (2, 4):
            live.create_topic(f"new{kill}", 1)
            topics.append((f"new{kill}", 0))
        write(110)
        point = POINTS[(seed * KILLS_A_STORE + kill) % len(POINTS)]
        batches = 0 if not kill else rng.randrange(3)
        assert run_driver(**given, die=(point, batches)) == KILLED, point
    write(10)
    assert run_driver(**given) == 0
    rows = ledger_rows(tmp_path / "ledger")
    assert len(rows) == len(set(rows))
    assert sorted(rows) == sorted(
        (topic, queue_id, offset)
        for (topic, queue_id), count in counts.items()
        for offset in range(count)
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t"}])
def test_kill_between_offset_log_and_commit_of_batch_0_with_latest(
    live: MessageStore, tmp_path: Path, chosen: dict[str, str]
) -> None:
    """What 'latest' was is in the log of offsets: neither lost nor moved by the restart."""
    put(live, "t", 0, 10)
    given = {
        "store": str(tmp_path / "s"), "checkpoint": str(tmp_path / "c"),
        "ledger": str(tmp_path / "ledger"), "options": {"startingOffsets": "latest", **chosen},
    }  # fmt: skip
    assert run_driver(**given, die=("offsets", 0)) == KILLED
    assert (tmp_path / "c" / "offsets" / "0").exists()
    assert not (tmp_path / "c" / "commits" / "0").exists()
    put(live, "t", 0, 7)
    put(live, "t", 1, 3)
    assert run_driver(**given) == 0
    rows = ledger_rows(tmp_path / "ledger")
    assert sorted(rows) == [("t", 0, n) for n in range(10, 17)] + [("t", 1, n) for n in range(3)]
