"""Old files go while messages are pending, stopped at each step: what is pending is in a file that stays."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from engine_store import record, records_on_disk, small_config

from storage.files.protocol import DiskSpace
from storage.message import Message
from storage.testing import SimulatedDisk, SteppedClock, SteppedWorkers, every_stop
from storage.timers import worker as timers
from storage.writer import StoreWriter

STRIDE = int(os.environ.get("PENDING_STRIDE", "113"))
BODY = b"x" * 700
TOPICS = ("filled", "later", "orders")
DELAYED = (b"timer", b"level", b"second timer")
HALVES = ("A", "B")


class Life:
    """What was stored, and what of it had come while all of the log was there to be looked at."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.clock.advance(max(time.time() - self.clock.now_ms() / 1000, 0) + 86_400)
        self.stored: set[bytes] = set()
        self.committing: set[str] = set()
        self.came: set[bytes] = set()
        self.begins: set[int] = set()  # of the log

    def open(self, disk: SimulatedDisk) -> StoreWriter:
        disk.space = lambda _: DiskSpace(86, 14)  # type: ignore[method-assign]  files of any age go
        self.disk = disk
        self.workers = SteppedWorkers()
        config = small_config(
            flush_mode="sync", commit_log_file_size=1 << 14, retention_ms=1, warm_ahead_bytes=0,
            retention_delete_hours="*",
        )  # fmt: skip
        return StoreWriter.open(
            disk.root / "store", config, filesystem=disk, clock=self.clock, workers=self.workers
        )

    def work(self, disk: SimulatedDisk) -> None:
        writer = self.open(disk)
        for topic in TOPICS:
            writer.create_topic(topic, 1)
        self.fill(writer)
        self.delay(writer, b"timer", delay_ms=20_000)
        self.delay(writer, b"level", delay_level=3)
        self.prepare(writer, "A")
        self.fill(writer)
        self.clean(writer)
        assert writer.status().min_commit_offset > 0
        self.pass_time(writer, 60)
        self.commit(writer, "A")
        self.look()
        self.delay(writer, b"second timer", delay_ms=3_600_000)
        self.prepare(writer, "B")
        self.fill(writer)
        self.clean(writer)
        writer.close()

    def acknowledged(self, writer: StoreWriter) -> None:
        self.workers.step("flush")
        assert writer.acknowledged_offset >= writer.appended_offset

    def fill(self, writer: StoreWriter) -> None:
        for _ in range(2):
            writer.append_batch(record("filled", body=BODY) * 20)
            self.workers.settle()
        self.acknowledged(writer)

    def delay(self, writer: StoreWriter, body: bytes, **fields: int) -> None:
        writer.put([Message("later", body, **fields)])
        self.acknowledged(writer)
        self.stored.add(body)

    def prepare(self, writer: StoreWriter, name: str) -> None:
        sent = record("orders", body=name.encode(), properties={"UNIQ_KEY": name})
        writer.transactions.prepare(sent, transaction_id=name)
        self.acknowledged(writer)
        self.stored.add(name.encode())

    def commit(self, writer: StoreWriter, name: str) -> None:
        self.committing.add(name)
        [answer], _ = writer.transactions.end([name], commit=True)
        assert answer.state.value == "committed", f"{name}: {answer}"
        self.acknowledged(writer)

    def pass_time(self, writer: StoreWriter, seconds: float) -> None:
        self.clock.advance(seconds)
        for _ in range(4):
            for name in self.workers.names:
                if name != "retention":
                    self.workers.step(name)
        self.acknowledged(writer)

    def clean(self, writer: StoreWriter) -> None:
        for _ in range(12):
            self.workers.step("retention")
            self.begins.add(writer.status().min_commit_offset)

    def look(self) -> Counter[bytes]:
        """Note what has come, before files go in which it is."""
        found = Counter(
            each.body
            for each in records_on_disk(self.disk.root / "store")
            if each.topic in TOPICS[1:]
        )
        self.came |= found.keys()
        return found


def check(life: Life, disk: SimulatedDisk, step: int) -> None:
    """Clean what a stop has left before anything else, then let all of it come."""
    writer = life.open(disk)
    life.look()
    life.clean(writer)
    life.pass_time(writer, 2 * 3_600)
    assert writer.timers.status().pending_count == 0
    assert writer.timers.counts.damaged == 0
    for pending in writer.transactions.pending():
        assert not pending.problem, f"step {step}: {pending}"
        life.commit(writer, pending.transaction_id)
    found = life.look()
    assert not {body for body, count in found.items() if count > 1}, f"step {step}: {found}"
    lost = life.stored - life.came
    assert not lost, f"step {step}: {lost} did not come"
    writer.close()


@pytest.mark.parametrize("kills", [True, False])
def test_what_is_pending_keeps_its_bytes_wherever_it_is_stopped(
    tmp_path: Path, kills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "SAVE_INTERVAL_S", 0.5)
    lives: list[Life] = []

    def work(disk: SimulatedDisk) -> None:
        lives.append(Life())
        lives[-1].work(disk)

    for run in every_stop(tmp_path / "runs", work, kills=kills, step_stride=STRIDE):
        check(lives[-1], run.disk, run.step)
    assert len(lives) > 3
    assert len(lives[-1].begins) >= 2 and min(lives[-1].begins) > 0, "files went, and again"
    assert lives[-1].stored == {*DELAYED, *(name.encode() for name in HALVES)}
