"""What a broker rolled on, and so wrote once more, is delivered once, at its time; its recall counts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_store import records_on_disk
from steps_to_try import cases_to_try
from timer_store import NOW_MS, TimerStore

from storage.engine.copies import prepared_copies
from storage.format.names import TIMER_TOPIC
from storage.format.properties import encode_properties
from storage.format.record import Record, encode_for_batch
from storage.timers import worker

DUE_MS = NOW_MS + 9_000
TIMES = [{"deliver_at_ms": DUE_MS + 100}, {"delay_ms": 9_100}]


def parked_in(directory: Path) -> list[Record]:
    return [each for each in records_on_disk(directory) if each.topic == TIMER_TOPIC]


def roll(store: TimerStore, parked: Record, times: int = 1) -> None:
    """Write a record of the timer topic once more, as a broker does."""
    properties = {**parked.properties, "TIMER_ROLL_TIMES": str(times)}
    properties.pop("__CRC32#")
    again = encode_for_batch(
        parked.topic, 0, parked.body, encode_properties(properties), parked.flag, 0,
        parked.born_timestamp_ms, parked.born_host,
    )  # fmt: skip
    copies = prepared_copies(np.frombuffer(again, np.uint8), 1, store_host_size=8, append_crc=True)
    store.writer._appender.append_parked(copies)


def pass_slowly(store: TimerStore, until_ms: int) -> None:
    """Let time pass in small steps, so that there are many batches."""
    for now_ms in range(DUE_MS - 100, until_ms, 100):
        store.pass_to(now_ms)


@pytest.mark.parametrize("time", TIMES, ids=["time", "delay"])
@pytest.mark.parametrize("others", cases_to_try([30, 0]))
def test_it_is_delivered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int, time: dict[str, Any]
) -> None:
    """However many batches are due between it and the record before."""
    monkeypatch.setattr(worker, "ROWS_MAX", 2)
    store = TimerStore(tmp_path)
    store.put(b"rolled", **time, unique_key="KEY", queue_id=0)
    for number in range(others):
        due_ms = DUE_MS + 110 + 12 * number
        store.put(b"other", deliver_at_ms=due_ms, unique_key=f"OTHER{number}", queue_id=0)
    store.pass_to(NOW_MS + 2_000)
    roll(store, parked_in(tmp_path)[0])
    roll(store, parked_in(tmp_path)[0], times=2)
    pass_slowly(store, DUE_MS + 2_500)
    assert sorted(store.bodies()) == [b"other"] * others + [b"rolled"]
    assert store.delivered()[0].store_timestamp_ms == DUE_MS + 100  # as it was asked for
    assert store.writer.timers.counts.repeated == 2
    store.close()


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("stop_ms", cases_to_try([DUE_MS + 200, DUE_MS - 3_000]))
@pytest.mark.parametrize("time", TIMES, ids=["time", "delay"])
def test_it_is_delivered_once_wherever_the_store_is_stopped(
    tmp_path: Path, time: dict[str, Any], stop_ms: int, is_killed: bool
) -> None:
    store = TimerStore(tmp_path / "store")
    store.put(b"rolled", **time, unique_key="KEY", queue_id=0)
    store.pass_to(NOW_MS + 2_000)
    roll(store, parked_in(store.directory)[0])
    store.settle()
    store.pass_to(stop_ms)
    if is_killed:
        shutil.copytree(tmp_path / "store", tmp_path / "left")
    store.close()
    left = tmp_path / ("left" if is_killed else "store")
    store = TimerStore(left, now_ms=stop_ms)
    store.settle()
    store.pass_to(DUE_MS + 2_500)
    assert store.bodies() == [b"rolled"]
    store.close()


@pytest.mark.parametrize("time", cases_to_try(TIMES))
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_rolled", [False, True])
def test_its_recall_counts(
    tmp_path: Path, time: dict[str, Any], restarts: bool, is_rolled: bool
) -> None:
    """Though it was stored before a broker rolled the message on, or the recall, too; what came after it comes."""
    store = TimerStore(tmp_path)
    result = store.put(b"recalled", **time, unique_key="KEY", queue_id=0)
    store.pass_to(NOW_MS + 2_000)
    store.writer.timers.recall("later", "KEY", result.recall_ms)
    store.put(b"second", deliver_at_ms=DUE_MS + 150, unique_key="KEY", queue_id=0)
    message, recall, second = parked_in(tmp_path)
    for each in (second, message, recall) if is_rolled else (message, second):
        roll(store, each)
    store.settle()
    if restarts:
        store.close()
        store = TimerStore(tmp_path, now_ms=DUE_MS - 100)
    pass_slowly(store, DUE_MS + 2_500)
    assert store.bodies() == [b"second"]
    store.close()
