"""What a broker finds after an orderly stop: its timer wheel and log, of just what is pending."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engine_store import leave_as_a_broker_does, records_on_disk
from full_filesystem import full as no_space
from hand_store import NOW_MS, TimerStore

from storage.engine.appender import Appender
from storage.format.config_json import decode_config
from storage.timers import worker
from storage.timers.hand_over import TIMER_LOG_UNIT, WHEEL_SLOT

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def small_wheel() -> None:
    """None here: the wheel is a broker's."""


def chains(directory: Path) -> dict[int, list[tuple[int, int]]]:
    """Follow every slot of the wheel: commit offsets and magics by the second of the slot."""
    wheel = np.frombuffer((directory / "timerwheel").read_bytes(), WHEEL_SLOT)
    log = (directory / "timerlog" / f"{0:020d}").read_bytes()
    assert (wheel.nbytes, len(log)) == (38_707_200, 100 << 20)
    found = {}
    for slot in np.flatnonzero(wheel["count"]).tolist():
        second, first, last, count, _ = wheel[slot].tolist()
        assert second % len(wheel) == slot
        units = []
        position = last
        while position >= 0:
            unit = np.frombuffer(log, TIMER_LOG_UNIT, 1, position)[0]
            if not unit["magic"] & 2:
                assert unit["write_ms"] + unit["delay_ms"] == second * 1_000
            units.append((int(unit["commit_offset"]), int(unit["magic"])))
            first_met, position = position, int(unit["previous"])
        assert (len(units), first_met) == (count, first)
        found[second] = units
    return found


def test_a_broker_gets_what_is_pending_and_nothing_else(tmp_path: Path) -> None:
    store = TimerStore(tmp_path)
    for number in range(30):
        store.put(b"%d" % number, delay_ms=700 * (number + 1), unique_key=f"KEY{number}")
    store.put(b"far", delay_ms=2 * DAY_MS + 60_000)
    result = store.put(b"recalled", delay_ms=15_000, unique_key="AWAY", tag="_RECALL_TAG_")
    store.writer.timers.recall("later", "AWAY", result.recall_ms)
    store.pass_to(NOW_MS + 10_000)
    store.close()
    left = {
        record.commit_offset: record
        for record in records_on_disk(tmp_path)
        if record.topic == "rmq_sys_wheel_timer"
    }
    found = chains(tmp_path)
    held = [unit for units in found.values() for unit in units]
    pending = [
        record for record in left.values()
        if "TIMER_DELAY_MS" not in record.properties
        or int(record.properties["TIMER_DELAY_MS"]) > 10_000
    ]  # fmt: skip
    assert sorted(offset for offset, _ in held) == sorted(each.commit_offset for each in pending)
    for second, units in found.items():
        for offset, magic in units:
            record = left[offset]
            is_recall = "TIMER_DEL_UNIQKEY" in record.properties
            is_far = record.body == b"far"
            assert magic == 1 | 4 * is_recall | 2 * is_far
            if not is_far:
                assert record.properties["TIMER_OUT_MS"] == str(second * 1_000)
    check = (tmp_path / "config" / "timercheck").read_bytes()
    read_ms, position, queue_offset = (
        int.from_bytes(check[at : at + 8], "big") for at in (0, 8, 16)
    )
    assert queue_offset == len(left)
    assert position == 52 * (len(held) + 1)
    assert read_ms <= min(found) * 1_000


def test_a_broker_gets_all_that_was_stored_just_before_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "ROWS_MAX", 3)
    store = TimerStore(tmp_path)
    store.settle()
    for number in range(20):
        store.put(b"%d" % number, delay_ms=60_000)
    store.close()
    assert sum(map(len, chains(tmp_path).values())) == 20


@pytest.mark.parametrize("refused", [Appender, "wheel"], ids=["deliveries", "the wheel"])
def test_a_stop_with_a_full_disk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: object
) -> None:
    store = TimerStore(tmp_path)
    store.put(b"due", delay_ms=1_000)
    store.put(b"later", delay_ms=60_000)
    store.settle()
    store.clock.ms += 1_000
    with monkeypatch.context() as full:
        if refused is Appender:
            full.setattr(Appender, "append", no_space)
        else:
            full.setattr(worker, "write_broker_timers", no_space)
        store.close()
    assert (tmp_path / "timerwheel").exists() == (refused is Appender)
    if refused is Appender:
        assert sum(map(len, chains(tmp_path).values())) == 2
    store = TimerStore(tmp_path, now_ms=NOW_MS + 60_000)
    store.settle()
    assert store.bodies() == [b"due", b"later"]
    store.close()


def test_a_broker_does_not_get_what_was_recalled(tmp_path: Path) -> None:
    store = TimerStore(tmp_path)
    result = store.put(b"recalled", deliver_at_ms=NOW_MS + 5_499, unique_key="KEY")
    store.put(b"kept", deliver_at_ms=NOW_MS + 5_499, unique_key="OTHER")
    store.writer.timers.recall("later", "KEY", result.recall_ms)
    store.pass_to(NOW_MS + 4_600)  # the recall has been met, the messages are not due
    store.close()
    assert not (tmp_path / "timerwheel").exists()  # it reads the topic again, and the recall
    store = TimerStore(tmp_path, now_ms=NOW_MS + 6_000)
    store.settle()
    assert store.bodies() == [b"kept"]
    store.close()


def test_what_a_broker_left_pending_is_delivered_and_nothing_twice(tmp_path: Path) -> None:
    store = TimerStore(tmp_path)
    for number in range(20):
        store.put(b"%d" % number, delay_ms=1_000 * (number + 1))
        store.put(b"level %d" % number, delay_level=1 + number % 4)
    store.pass_to(NOW_MS + 10_000)
    before = store.bodies()
    store.close()
    leave_as_a_broker_does(tmp_path)
    for path in (tmp_path / "timers").iterdir():
        path.unlink()
    (tmp_path / "timers").rmdir()
    levels = decode_config((tmp_path / "config" / "delayOffset.json").read_bytes())["offsetTable"]
    assert levels == {1: 5, 2: 5, 3: 5, 4: 0}
    store = TimerStore(tmp_path, now_ms=NOW_MS + 10_000)
    store.settle()
    assert not (tmp_path / "timerwheel").exists()
    assert store.bodies() == before
    store.pass_to(NOW_MS + 40_000)
    wanted = [b"%d" % number for number in range(20)] + [b"level %d" % n for n in range(20)]
    assert sorted(store.bodies()) == sorted(wanted)
    store.close()
