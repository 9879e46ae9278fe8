"""A real broker delivers what we left pending, nothing that we had delivered; and we what it leaves."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from engine_store import records_on_disk, small_config
from oracle import SMALL_FILES, oracle_open
from store_workload import wait_for_topics

from storage.clock import SystemClock
from storage.message import Message
from storage.writer import StoreWriter

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
HOUR_MS = 3_600_000


class AheadClock(SystemClock):
    """The system's clock, two hours ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 2 * HOUR_MS


def bodies(directory: Path) -> Counter[bytes]:
    return Counter(each.body for each in records_on_disk(directory) if each.topic == "later")


def put(writer: StoreWriter, kind: str, count: int, **fields: int) -> list[int]:
    results = writer.put(
        [
            Message("later", f"{kind} {number}".encode(), unique_key=f"{kind}-{number}", **fields)
            for number in range(count)
        ]
    )
    return [result.recall_ms for result in results]


def wait_delivered(writer: StoreWriter, count: int) -> None:
    deadline = time.monotonic() + 30
    while writer.timers.counts.delivered < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_pending_timers_go_to_a_broker_and_come_back(tmp_path: Path) -> None:
    ours, kept = tmp_path / "store", tmp_path / "kept"
    with StoreWriter.open(ours, small_config()) as writer:
        writer.create_topic("later", 1)
        put(writer, "early", 20, delay_ms=50)
        put(writer, "level", 5, delay_level=1)
        wait_delivered(writer, 25)
        put(writer, "late", 10, delay_ms=HOUR_MS)
        recalls_ms = put(writer, "recalled", 3, delay_ms=HOUR_MS)
        for number, recall_ms in enumerate(recalls_ms):
            writer.timers.recall("later", f"recalled-{number}", recall_ms)
        soon_ms = SystemClock().now_ms() + 2_500
        put(writer, "soon", 10, deliver_at_ms=soon_ms)
        put(writer, "hour", 5, delay_level=17)
        assert writer.wait_dispatched(writer.appended_offset, 30)
    before = bodies(ours)
    assert {body.split()[0] for body in before} == {b"early", b"level"}
    assert set(before.values()) == {1}
    while SystemClock().now_ms() < soon_ms:
        time.sleep(0.01)

    opened = oracle_open(ours, settings=SMALL_FILES | {"timerWheelEnable": True}, keep=kept)

    assert opened.good, (opened.report, opened.stderr[-500:])
    after = bodies(kept)
    assert {body: count for body, count in after.items() if count > 1} == {}
    assert {body.split()[0] for body in after} == {b"early", b"level", b"soon"}
    assert sum(body.startswith(b"soon") for body in after) == 10
    with StoreWriter.open(kept, small_config(), clock=AheadClock()) as writer:
        wait_delivered(writer, 15)
    at_last = bodies(kept)
    assert set(at_last.values()) == {1}
    kinds = Counter(body.split()[0] for body in at_last)
    assert kinds == {b"early": 20, b"level": 5, b"soon": 10, b"late": 10, b"hour": 5}


def test_what_a_broker_rolled_on_comes_once(tmp_path: Path) -> None:
    """After a kill it reads the topic again; its window is so small that it writes each record every few seconds."""
    ours, killed = tmp_path / "store", tmp_path / "killed"
    with StoreWriter.open(ours, small_config()) as writer:
        writer.create_topic("later", 1)
        put(writer, "delay", 3, delay_ms=HOUR_MS)
        put(writer, "time", 3, deliver_at_ms=SystemClock().now_ms() + HOUR_MS)
        [recall_ms] = put(writer, "recalled", 1, delay_ms=HOUR_MS)
        writer.timers.recall("later", "recalled-0", recall_ms)
        assert writer.wait_dispatched(writer.appended_offset, 30)
        wait_for_topics(ours, ["later"])
        shutil.copytree(ours, killed)
    settings = SMALL_FILES | {"timerWheelEnable": True, "timerRollWindowSlot": 2}
    for _ in range(2):
        kept = killed.with_name(killed.name + "-kept")
        opened = oracle_open(killed, settings=settings, keep=kept)
        assert opened.good, (opened.report, opened.stderr[-500:])
        killed = kept
    rolled = Counter(
        each.body.split()[0]
        for each in records_on_disk(kept)
        if "TIMER_ROLL_TIMES" in each.properties
    )
    assert rolled.keys() >= {b"delay", b"time", b"recalled", b"0"}
    with StoreWriter.open(kept, small_config(), clock=AheadClock()) as writer:
        wait_delivered(writer, 6)
        time.sleep(2)
        assert writer.timers.counts.repeated == rolled.total()
        assert writer.timers.counts.recalled == 1
    at_last = bodies(kept)
    assert set(at_last.values()) == {1}
    assert {body.split()[0] for body in at_last} == {b"delay", b"time"}
    assert len(at_last) == 6
