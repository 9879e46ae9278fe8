"""A recall that was stored before its message is due counts, whatever else waits: what it takes back and what it does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_store import records_on_disk
from hand_store import NOW_MS, TimerStore
from steps_to_try import cases_to_try

from storage.engine.copies import prepared_copies
from storage.errors import InvalidMessage, TooLateToRecall
from storage.format.names import TIMER_TOPIC
from storage.format.properties import encode_properties
from storage.format.recall_handle import RecallHandle, decode_recall_handle
from storage.format.record import Record, encode_for_batch
from storage.timers import worker
from storage.timers.schedule import Schedule

DUE_MS = NOW_MS + 5_000
FAR_MS = NOW_MS + 900_000


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


def test_one_whose_append_comes_too_late_is_refused_and_does_not_count(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = store.put(b"kept", deliver_at_ms=DUE_MS, unique_key="KEY")
    park = Schedule.park

    def park_slowly(*args: Any) -> Any:
        parked = park(*args)
        store.clock.ms = result.recall_ms
        return parked

    monkeypatch.setattr(Schedule, "park", park_slowly)
    with pytest.raises(TooLateToRecall):
        recall(store, "KEY", result.recall_ms)
    store.pass_to(DUE_MS)
    assert store.bodies() == [b"kept"]


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


BROKERS = "djEgVCBCIDE3OTUzNTU0MjYwMDEgS0VZ"  # v1 T B 1795355426001 KEY


@pytest.mark.parametrize("key", ["KEY", "KEY1", "KEY12", "schlüssel", f"01{7:032X}"])
def test_a_handle_reads_back_and_is_a_brokers(key: str) -> None:
    handle = RecallHandle("later", "penstock", DUE_MS, key)
    assert decode_recall_handle(handle.encode()) == handle
    assert decode_recall_handle(BROKERS) == RecallHandle("T", "B", 1795355426001, "KEY")


@pytest.mark.parametrize("store_host", ["127.0.0.1:10911", "[::1]:10911"])
def test_a_handle_that_was_cut_takes_back_nothing(tmp_path: Path, store_host: str) -> None:
    """Wherever it was cut: of a key that the store made more than the address must be left."""
    store = TimerStore(tmp_path, store_host=store_host)
    result = store.put(b"kept", deliver_at_ms=DUE_MS)
    text = RecallHandle("later", "penstock", result.recall_ms, result.unique_key).encode()
    for length in range(len(text) - 1, len(text) - 32, -1):
        with pytest.raises(InvalidMessage, match="recall_handle"):
            cut = decode_recall_handle(text[:length])
            store.writer.timers.recall(cut.topic, cut.unique_key, cut.recall_ms)
    store.settle()
    store.pass_to(DUE_MS)
    assert store.bodies() == [b"kept"]
    store.close()


@pytest.mark.parametrize("broken", ["{}\n", " {}", "{}====", "{}!"])
def test_a_handle_with_other_characters_is_none(broken: str) -> None:
    with pytest.raises(InvalidMessage, match="not a whole recall handle"):
        decode_recall_handle(broken.format(BROKERS))


@pytest.mark.parametrize("key", ["1", "7F", "7F000001-order", "ABCDEF0123", "order-7"])
def test_a_short_key_of_a_callers_own_is_whole(store: TimerStore, key: str) -> None:
    result = store.put(b"recalled", deliver_at_ms=DUE_MS, unique_key=key)
    store.writer.timers.recall("later", key, result.recall_ms)
    store.settle()
    store.pass_to(DUE_MS)
    assert store.bodies() == []
    store.close()


DUE_MS_ROLLED = NOW_MS + 9_000


TIMES = [{"deliver_at_ms": DUE_MS_ROLLED + 100}, {"delay_ms": 9_100}]


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
    copies = prepared_copies(store.writer._engine, np.frombuffer(again, np.uint8), 1)
    store.writer._appender.append_parked(copies)


def pass_slowly(store: TimerStore, until_ms: int) -> None:
    """Let time pass in small steps, so that there are many batches."""
    for now_ms in range(DUE_MS_ROLLED - 100, until_ms, 100):
        store.pass_to(now_ms)


@pytest.mark.parametrize("time", TIMES, ids=["time", "delay"])
@pytest.mark.parametrize("others", cases_to_try([30, 0]))
def test_it_is_delivered_once(
    tmp_path: Path,
    store: TimerStore,
    monkeypatch: pytest.MonkeyPatch,
    others: int,
    time: dict[str, Any],
) -> None:
    """However many batches are due between it and the record before."""
    monkeypatch.setattr(worker, "ROWS_MAX", 2)
    store.put(b"rolled", **time, unique_key="KEY", queue_id=0)
    for number in range(others):
        due_ms = DUE_MS_ROLLED + 110 + 12 * number
        store.put(b"other", deliver_at_ms=due_ms, unique_key=f"OTHER{number}", queue_id=0)
    store.pass_to(NOW_MS + 2_000)
    roll(store, parked_in(tmp_path)[0])
    roll(store, parked_in(tmp_path)[0], times=2)
    pass_slowly(store, DUE_MS_ROLLED + 2_500)
    assert sorted(store.bodies()) == [b"other"] * others + [b"rolled"]
    assert store.records()[0].store_timestamp_ms == DUE_MS_ROLLED + 100  # as it was asked for
    assert store.writer.timers.counts.repeated == 2


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
    store.put(b"second", deliver_at_ms=DUE_MS_ROLLED + 150, unique_key="KEY", queue_id=0)
    message, recall, second = parked_in(tmp_path)
    for each in (second, message, recall) if is_rolled else (message, second):
        roll(store, each)
    store.settle()
    if restarts:
        store.close()
        store = TimerStore(tmp_path, now_ms=DUE_MS_ROLLED - 100)
    pass_slowly(store, DUE_MS_ROLLED + 2_500)
    assert store.bodies() == [b"second"]
    store.close()
