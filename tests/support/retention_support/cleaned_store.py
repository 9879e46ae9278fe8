"""A store on a simulated machine whose files grow old at once, and what of it is left beside what was stored."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from cut_machine import Machine
from engine_store import record

from storage.indexer import StoreIndexer
from storage.message import PullStatus
from storage.reader import StoreReader
from storage.writer import StoreWriter

HOUR_MS = 3_600_000
EVERY_HOUR = ";".join(str(hour) for hour in range(24))
BODY = b"x" * 400


class CleanedStore:
    """``machine`` has the store; records of topic t, queue 0 are numbered from 0, and expire when ``age`` is called."""

    def __init__(self, root: Path, seed: int = 1) -> None:
        self.machine = Machine(root, seed)
        self.count = 0
        self.ends: list[int] = []  # of each record in the log
        self.writer: StoreWriter

    def open(self, **changes: Any) -> StoreWriter:
        options = {"retention_ms": 72 * HOUR_MS, "retention_delete_hours": EVERY_HOUR}
        self.writer = self.machine.open(**(options | changes))
        self.machine.workers.step(
            "timers"
        )  # which need all of the log until they know what is pending
        if not self.writer.list_topics():
            self.writer.create_topic("t", 1)
        return self.writer

    def fill(self, count: int) -> None:
        """Store records, and make all of them durable."""
        for _ in range(count):
            body = b"%d " % self.count + BODY
            self.ends.append(self.writer.append_batch(record(body=body)).end_commit_offset)
            self.count += 1
        self.writer._engine.settle()
        self.writer._engine.checkpointer.checkpoint()

    def age(self, hours: float = 100) -> None:
        """Let time pass, from now of the machine that the tests run on."""
        clock = self.machine.clock
        clock.advance(max(time.time() - clock.now_ms() / 1000, 0) + hours * 3600)

    def clean(self, steps: int = 400) -> None:
        """Make steps of retention, at most so many, until a round deletes nothing."""
        for _ in range(steps):
            worker = self.machine.workers._workers["retention"]
            before = self.writer.retention.report().deleted_file_count
            while worker.step() is not None:
                pass
            if self.writer.retention.report().deleted_file_count == before:
                return

    @property
    def log_files(self) -> list[int]:
        return sorted(int(path.name) for path in (self.machine.directory / "commitlog").iterdir())

    @property
    def queue_files(self) -> list[int]:
        directory = self.machine.directory / "consumequeue" / "t" / "0"
        return sorted(int(path.name) for path in directory.iterdir())

    def kept(self, min_offset: int) -> list[int]:
        """Return the numbers of the records that begin at a commit offset or after it."""
        starts = [0, *self.ends[:-1]]
        return [
            number
            for number, end in enumerate(self.ends)
            if (starts[number] if starts[number] // 65536 == (end - 1) // 65536 else end)
            >= min_offset
        ]

    def served(self) -> list[int]:
        """Return the numbers of the records that a reader serves from the queue's minimum on."""
        reader = StoreReader.open(
            self.machine.directory, self.writer.config,
            filesystem=self.machine.disk, clock=self.machine.clock,
        )  # fmt: skip
        try:
            offset, found = reader.min_offset("t", 0), []
            while True:
                result = reader.pull("t", 0, queue_offset=offset, max_messages=100)
                if result.status is not PullStatus.FOUND:
                    assert result.status is PullStatus.OFFSET_OVERFLOW_ONE, result.status
                    return found
                assert not result.damaged, result.damaged
                found += range(offset, result.next_offset)
                offset = result.next_offset
        finally:
            reader.close()

    def indexer(self) -> StoreIndexer:
        return StoreIndexer.open(
            self.machine.directory, self.writer.config,
            filesystem=self.machine.disk, clock=self.machine.clock, workers=self.machine.workers,
        )  # fmt: skip
