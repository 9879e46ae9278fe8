"""A writer without threads on a clock that a test moves: delayed messages and transactions, through stops and cuts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine_store import PASSING, record, records_on_disk, small_config
from flips import flip
from hand_clock import HandClock

from storage.files.filesystem import FileSystem
from storage.format.record import Record
from storage.message import Message
from storage.testing import SteppedWorkers
from storage.transactions.values import TransactionCheck
from storage.writer import StoreWriter

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
NOW_MS = 1_700_000_000_500


def message(
    body: bytes, key: str, *, topic: str = "orders", queue_id: int = 0, **properties: str
) -> bytes:
    return record(topic, queue_id, body, properties={"UNIQ_KEY": key, **properties})


class HandStore:
    """A store of one topic, opened again as often as a test wants; ``asked`` has the checks that came."""

    topic = "orders"
    queue_count = 4

    def __init__(
        self, directory: Path, *, now_ms: int = NOW_MS, clock: HandClock | None = None,
        filesystem: FileSystem | None = None, **config: Any,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.clock = clock or HandClock(now_ms)
        self.asked: list[TransactionCheck] = []
        self._filesystem = filesystem
        self._config = small_config(**config)
        self.open()

    def open(self) -> None:
        self.workers = SteppedWorkers()
        self.writer = StoreWriter.open(
            self.directory, self._config, clock=self.clock, workers=self.workers,
            filesystem=self._filesystem,
        )  # fmt: skip
        self.transactions = self.writer.transactions
        self.checks = self.writer.transaction_checks
        if not self.writer.list_topics():
            self.writer.create_topic(self.topic, self.queue_count)

    def close(self) -> None:
        self.writer.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def settle(self) -> None:
        for _ in range(4):
            self.workers.settle()

    def pass_to(self, now_ms: int) -> None:
        """Let time pass, and the store do what is due."""
        self.clock.ms = now_ms
        self.settle()

    def records(self, topic: str = "") -> list[Record]:
        return [
            each for each in records_on_disk(self.directory) if each.topic == (topic or self.topic)
        ]

    def bodies(self, topic: str = "") -> list[bytes]:
        return [each.body for each in self.records(topic)]

    # ---- stops that are none in order

    def kill(self) -> None:
        """Open again as after the death of the writer, by copying what the page cache holds."""
        self.workers.settle()
        self._go_on_in("killed")
        self.open()

    def cut_off(self, commit_offset: int) -> None:
        """Close, and go on with a copy of before that: the log ends at ``commit_offset``, and no checkpoint counts."""
        self._go_on_in("after")
        (self.directory / "checkpoint").unlink()  # of another run of the machine
        self.end_log_at(commit_offset)

    def _go_on_in(self, name: str) -> None:
        after = self.directory.with_name(f"{self.directory.name}-{name}")
        shutil.copytree(self.directory, after, ignore=PASSING)
        self.close()
        self.directory = after

    def end_log_at(self, commit_offset: int) -> None:
        """Leave nothing in the first file of the log from an offset on."""
        path = self.directory / "commitlog" / f"{0:020d}"
        content = path.read_bytes()
        path.write_bytes(content[:commit_offset].ljust(len(content), b"\0"))

    def flip(self, commit_offset: int) -> None:
        """Flip a bit of the first file of the log; again, and it is mended."""
        flip(self.directory / "commitlog" / f"{0:020d}", commit_offset)

    # ---- delayed messages

    def put(self, body: bytes, **fields: Any) -> Any:
        return self.writer.put([Message(self.topic, body, **fields)])[0]

    # ---- transactions

    def watch(self, *topics: str) -> None:
        self.checks.watch(topics, self.asked.append)

    def prepare(self, *messages: bytes, transaction_id: str = "") -> tuple[str, ...]:
        stored = self.transactions.prepare(b"".join(messages), transaction_id=transaction_id)
        return stored.transaction_ids

    def end(
        self, *transaction_ids: str, commit: bool, topic: str = ""
    ) -> list[tuple[str, int, bool]]:
        ended, _ = self.transactions.end(transaction_ids, commit=commit, topic=topic)
        return [(each.state.value, each.message_count, each.already) for each in ended]

    def check(self, pass_ms: int = 0) -> None:
        self.clock.pass_ms(pass_ms)
        self.workers.step("transactions")

    def pending(self) -> Sequence[str]:
        return [each.transaction_id for each in self.transactions.pending()]


class TimerStore(HandStore):
    """The topic of delayed messages."""

    topic = "later"
    queue_count = 2
