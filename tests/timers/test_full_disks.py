"""Timers fall due on a disk without room: what was decided goes on where it can, and nothing is lost where it cannot."""

from __future__ import annotations

import errno
from collections import Counter
from pathlib import Path

import pytest
from engine_store import record
from hand_store import NOW_MS, TimerStore

from storage.errors import StoreFull
from storage.testing import SimulatedDisk

BODY = b"x" * 2_000
COUNT = 80  # copies of them need two more files of the log


def test_what_was_decided_is_stored_while_producers_are_refused(store: TimerStore) -> None:
    """It lets go of the files that retention waits for: deliveries, recalls, ends of transactions."""
    writer = store.writer
    store.put(b"time", delay_ms=1_000)
    store.put(b"level", delay_level=1)
    recalled = store.put(b"recalled", delay_ms=4_000, unique_key="KEY")
    half = record("later", body=b"half", properties={"UNIQ_KEY": "H"})
    writer.transactions.prepare(half, transaction_id="H")
    store.settle()
    writer.retention.refusal = "the disk is 91 % full"

    for fields in ({}, {"delay_ms": 1_000}, {"delay_level": 1}):
        with pytest.raises(StoreFull, match="91 % full"):
            store.put(b"refused", **fields)
    with pytest.raises(StoreFull, match="91 % full"):
        writer.transactions.prepare(record("later", properties={"UNIQ_KEY": "I"}))
    writer.timers.recall("later", "KEY", recalled.recall_ms)
    [ended], _ = writer.transactions.end(["H"], commit=True)
    store.pass_to(NOW_MS + 5_000)

    assert ended.state.value == "committed"
    assert Counter(store.bodies()) == Counter([b"time", b"level", b"half"])
    assert writer.timers.counts.recalled == 1
    assert writer.followers.offsets().get("timers") is None, "nothing is held any more"


@pytest.mark.parametrize("where", ["commitlog", "timers", "consumequeue"])
def test_a_disk_without_space_delays_deliveries(tmp_path: Path, where: str) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    store = TimerStore(disk.root / "store", filesystem=disk)
    for number in range(COUNT):
        store.put(b"%d " % number + BODY, delay_ms=1_000, queue_id=0)
    store.settle()
    disk.fault, disk.faults_left, disk.fault_at = (errno.ENOSPC, 0), 10**9, where

    store.pass_to(NOW_MS + 10_000)
    store.pass_to(NOW_MS + 20_000)

    met_fault = any("ENOSPC" in each for each in disk.trace)
    if where == "commitlog":
        assert len(store.bodies()) < COUNT
        assert store.writer.timers.status().pending_count > 0
    assert met_fault and store.writer.failure() is None
    disk.fault = None
    for _ in range(4):
        store.pass_to(store.clock.ms + 1_000)
    counts = Counter(int(body.split()[0]) for body in store.bodies())
    assert counts == Counter(range(COUNT))
    assert store.writer.timers.status().pending_count == 0
    store.close()
