"""A store whose delayed messages fall due by a clock that a test sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine_store import records_on_disk, small_config
from hand_clock import HandClock

from storage.format.record import Record
from storage.message import Message
from storage.testing import SteppedWorkers
from storage.writer import StoreWriter

NOW_MS = 1_700_000_000_500


class TimerStore:
    """A writer, the steps of its workers, and its clock."""

    def __init__(self, directory: Path, *, now_ms: int = NOW_MS, **options: Any) -> None:
        self.directory = directory
        self.clock = options.pop("clock", None) or HandClock(now_ms)
        self.filesystem = options.pop("filesystem", None)
        self.workers = SteppedWorkers()
        self.writer = StoreWriter.open(
            directory, small_config(**options), clock=self.clock, workers=self.workers,
            filesystem=self.filesystem,
        )  # fmt: skip
        if not self.writer.list_topics():
            self.writer.create_topic("later", 2)

    def put(self, body: bytes, **fields: Any) -> Any:
        message = Message("later", body, unique_key=fields.pop("unique_key", ""), **fields)
        return self.writer.put([message])[0]

    def pass_to(self, now_ms: int) -> None:
        """Let time pass, and the store do what is due."""
        self.clock.ms = now_ms
        self.settle()

    def settle(self) -> None:
        for _ in range(4):
            self.workers.settle()

    def delivered(self) -> list[Record]:
        return [each for each in records_on_disk(self.directory) if each.topic == "later"]

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.delivered()]

    def close(self) -> None:
        self.writer.close()
