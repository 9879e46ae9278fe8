"""A recall that was stored before its message is due counts, whatever else waits: what it takes back and what it does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from timer_store import NOW_MS, TimerStore

from storage.errors import TooLateToRecall
from storage.timers import worker
from storage.timers.parking import Parking

DUE_MS = NOW_MS + 5_000
FAR_MS = NOW_MS + 900_000
SMALL_BODY = b"x" * 3_000  # six of them are more than a step of a small store reads


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> TimerStore:
    return TimerStore(tmp_path)


def recall(store: TimerStore, key: str, recall_ms: int) -> None:
    store.writer.timers.recall("later", key, recall_ms)


def test_one_that_lies_behind_many_records_counts(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than a step takes up, and no step was made in between."""
    monkeypatch.setattr(worker, "ROWS_MAX", 2)
    result = store.put(b"recalled", deliver_at_ms=DUE_MS, unique_key="KEY")
    store.settle()
    for _ in range(9):
        store.put(b"far", deliver_at_ms=FAR_MS)
    recall(store, "KEY", result.recall_ms)
    store.pass_to(DUE_MS)
    assert store.bodies() == []
    store.close()


def test_one_that_is_due_with_more_than_is_read_at_once_counts(store: TimerStore) -> None:
    result = store.put(b"recalled", deliver_at_ms=DUE_MS, unique_key="KEY")
    for _ in range(20):
        store.put(SMALL_BODY, deliver_at_ms=DUE_MS)
        store.settle()
    recall(store, "KEY", result.recall_ms)
    store.settle()
    store.pass_to(DUE_MS)
    assert store.bodies() == [SMALL_BODY] * 20
    store.close()


def test_one_whose_append_comes_too_late_is_refused_and_does_not_count(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = store.put(b"kept", deliver_at_ms=DUE_MS, unique_key="KEY")
    park = Parking.park

    def park_slowly(*args: Any) -> Any:
        parked = park(*args)
        store.clock.ms = result.recall_ms
        return parked

    monkeypatch.setattr(Parking, "park", park_slowly)
    with pytest.raises(TooLateToRecall):
        recall(store, "KEY", result.recall_ms)
    store.pass_to(DUE_MS)
    assert store.bodies() == [b"kept"]
    store.close()


@pytest.mark.parametrize("stopped_ms", [NOW_MS + 4_600, NOW_MS], ids=["met", "not taken up"])
def test_a_recall_counts_after_a_restart_and_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_ms: int
) -> None:
    """Also where it lies behind more than a step takes up or reads."""
    monkeypatch.setattr(worker, "ROWS_MAX", 2)
    store = TimerStore(tmp_path / "store")
    store.settle()
    result = store.put(b"recalled", deliver_at_ms=NOW_MS + 5_499, unique_key="KEY")
    kept = [b"%d" % number + b"." * 6_000 for number in range(6)]
    for body in kept:
        store.put(body, deliver_at_ms=NOW_MS + 5_499, queue_id=0)
    store.writer.timers.recall("later", "KEY", result.recall_ms)
    if stopped_ms > NOW_MS:
        store.pass_to(stopped_ms)  # the messages are not due
        store.close()
    store = TimerStore(
        shutil.copytree(tmp_path / "store", tmp_path / "stopped"), now_ms=NOW_MS + 900_000
    )
    for _ in kept:
        store.settle()
    assert store.bodies() == kept
    store.close()


@pytest.mark.parametrize("again_ms", [DUE_MS, DUE_MS - 100, DUE_MS + 1_000, DUE_MS + 60_000])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_scheduled_again_under_its_key_is_delivered(
    tmp_path: Path, again_ms: int, restarts: bool
) -> None:
    store = TimerStore(tmp_path)
    result = store.put(b"first", deliver_at_ms=DUE_MS, unique_key="KEY")
    recall(store, "KEY", result.recall_ms)
    store.put(b"second", deliver_at_ms=again_ms, unique_key="KEY")
    store.pass_to(DUE_MS - 900)  # the recall has been met, neither message is due
    if restarts:
        store.close()
        store = TimerStore(tmp_path, now_ms=DUE_MS - 900)
    store.settle()
    store.pass_to(DUE_MS + 60_000)
    assert store.bodies() == [b"second"]
    assert store.writer.timers.counts.recalled == 1
    store.close()
