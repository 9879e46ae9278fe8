"""Delayed messages, stopped at each step of the disk in turn: delivery, levels, recalls, hand-over, start."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_store import records_on_disk
from hand_clock import HandClock
from hand_store import NOW_MS, TimerStore
from steps_to_try import stops_to_try

from storage.testing import SimulatedDisk
from storage.timers import worker as timers

DUE_AFTER_MS = {b"first": 400, b"second": 1_300, b"third": 2_200, b"kept": 2_600, b"last": 9_000}
RECALLED_MS = {b"recalled": 2_600, b"recalled-behind": 2_100, b"recalled-late": 9_000}
BEFORE_MS = {b"before-%d" % number: 9_000 for number in range(3)}  # more than is taken up at once
LEVEL_MS = 1_000
LEVELS = (b"level-1", b"level-2")
PADDING = b"." * 7_000  # three of them are more than is read at once


class Life:
    """What a producer was told, for what has to be there afterwards; each is put and recalled once."""

    def __init__(self) -> None:
        self.clock = HandClock(NOW_MS)
        self.due_ms: dict[bytes, int] = {}  # of what was put, answered or not
        self.stored: set[bytes] = set()
        self.recalls: set[bytes] = set()
        self.recalled: set[bytes] = set()

    def open(self, disk: SimulatedDisk) -> TimerStore:
        return TimerStore(disk.root / "store", filesystem=disk, clock=self.clock, flush_mode="sync")

    def put(self, store: TimerStore, body: bytes, after_ms: int, **fields: Any) -> Any:
        self.due_ms[body] = fields.get("deliver_at_ms", self.clock.ms + after_ms)
        result = store.put(body + PADDING, unique_key=body.decode(), **fields)
        store.workers.step("flush")
        assert store.writer.wait_acknowledged(store.writer.appended_offset, 30)
        self.stored.add(body)
        return result

    def recall(self, store: TimerStore, body: bytes, recall_ms: int) -> None:
        self.recalls.add(body)
        end = store.writer.timers.recall("later", body.decode(), recall_ms)
        assert store.writer.wait_acknowledged(end, 30)
        self.recalled.add(body)

    def work(self, disk: SimulatedDisk) -> None:
        store = self.open(disk)
        handles = {}
        for body, after_ms in (DUE_AFTER_MS | RECALLED_MS).items():
            result = self.put(store, body, after_ms, deliver_at_ms=NOW_MS + after_ms)
            handles[body] = result.recall_ms
        self.put(store, LEVELS[0], LEVEL_MS, delay_level=1)
        self.recall(store, b"recalled", handles[b"recalled"])
        store.pass_to(NOW_MS + 700)  # the first is delivered
        self.put(store, LEVELS[1], LEVEL_MS, delay_level=1)
        store.pass_to(NOW_MS + 1_500)  # the second, a level; progress is saved
        store.close()
        store = self.open(disk)
        store.settle()
        self.recall(store, b"recalled-late", handles[b"recalled-late"])
        for body, after_ms in BEFORE_MS.items():
            self.put(store, body, after_ms, deliver_at_ms=NOW_MS + after_ms)
        self.recall(store, b"recalled-behind", handles[b"recalled-behind"])
        store.pass_to(
            NOW_MS + 3_000
        )  # what was recalled has its time, and one recall is not taken up
        store.close()


def check(life: Life, disk: SimulatedDisk, step: int) -> None:
    """Go on from what a stop has left until nothing is pending."""
    store = life.open(disk)
    store.settle()
    for now_ms in (max(life.clock.ms, NOW_MS + 8_999), NOW_MS + 9_000, NOW_MS + 30_000):
        store.pass_to(now_ms)
    assert store.writer.timers.status().pending_count == 0
    assert store.writer.timers.counts.damaged == 0
    store.close()
    found: Counter[bytes] = Counter()
    for each in records_on_disk(store.directory):
        if each.topic == "later":
            body = each.body.rstrip(b".")
            found[body] += 1
            assert each.store_timestamp_ms >= life.due_ms[body], f"{step}: {body} early"
    twice = {body for body, count in found.items() if count > 1}
    assert not twice, f"step {step}: {twice} came twice"
    lost = life.stored - life.recalls - found.keys()
    assert not lost, f"step {step}: {lost} did not come"
    assert not life.recalled & found.keys(), f"step {step}: {life.recalled & found.keys()} came"


@pytest.mark.parametrize(("kills", "share"), [(True, 0), (False, 96)])
def test_each_comes_once_and_never_early_wherever_it_is_stopped(
    tmp_path: Path, kills: bool, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "SAVE_INTERVAL_S", 0.5)
    monkeypatch.setattr(timers, "ROWS_MAX", 2)
    lives: list[Life] = []

    def work(disk: SimulatedDisk) -> None:
        lives.append(Life())
        lives[-1].work(disk)

    runs = 0
    for run in stops_to_try(tmp_path / "runs", work, 389, start=share, kills=kills):
        check(lives[-1], run.disk, run.step)
        runs += 1
    assert runs > 2
    life = lives[-1]
    assert life.stored == life.due_ms.keys() and life.recalled == RECALLED_MS.keys()
