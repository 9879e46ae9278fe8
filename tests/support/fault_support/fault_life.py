"""One store on a simulated machine, with the ledger beside it: short histories, ended as a check wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cut_machine import Machine
from fault_ledger import Ledger, Verdict, judge_rebuilt, require

from storage.config import FlushMode
from storage.message import Message
from storage.store import MessageStore

LOG_FILE_SIZE = 1 << 14


class FaultLife(Machine):
    """``store`` is open from the begin, and after ``open``; ``cut``, ``kill`` and ``close`` end it."""

    def __init__(
        self, root: Path, mode: FlushMode = "sync", *, pool: bool = False, seed: int = 1
    ) -> None:
        super().__init__(root, seed)
        self._mode = mode
        self._pool = pool
        self._number = 0
        self.ledger = Ledger()
        self.open()

    def open(self) -> None:
        """Start on what the last end has left."""
        config = self.start(
            flush_mode=self._mode, transient_pool=self._pool, transient_pool_size=3,
            commit_log_file_size=LOG_FILE_SIZE, index_slot_count=20, index_entry_count=60,
        )  # fmt: skip
        self.store = MessageStore.open(
            self.directory, config, filesystem=self.disk, clock=self.clock, workers=self.workers
        )

    # ---- work

    def create(self, name: str = "t", queue_count: int = 1) -> None:
        self.ledger.create_topic(self.store, name, queue_count)

    def messages(self, count: int, size: int = 10) -> list[Message]:
        """Return new messages for ``t``."""
        made = []
        for _ in range(count):
            self._number += 1
            body = b"%d " % self._number + bytes(size)
            key = f"k{self._number}"
            made.append(
                Message(topic="t", queue_id=0, body=body, keys=(key,), unique_key=f"u{key}")
            )
        return made

    def put(self, count: int = 1, size: int = 10) -> None:
        """Store messages, acknowledged."""
        for message in self.messages(count, size):
            self.ledger.put(self.store, [message])

    def send(self, count: int = 1) -> Sequence[Message]:
        """Store messages without waiting for an acknowledgement."""
        sent = self.messages(count)
        self.ledger.in_flight |= {message.body for message in sent}
        self.store.writer.put(sent)
        return sent

    def step(self, *names: str) -> None:
        for name in names:
            self.workers.step(name)

    # ---- judging

    def verdict(self) -> Verdict:
        self.step("dispatch")
        for _ in range(5):
            self.step("index")
        return judge_rebuilt(self.store.reader, self.ledger, self.workers)

    def require_all(self) -> None:
        """Raise FaultFound unless all that the ledger has is there, and nothing else."""
        verdict = self.verdict()
        require(verdict == Verdict(), verdict)
        held = {topic.name for topic in self.store.list_topics()}
        require(held == set(self.ledger.topics), f"topics {held}")

    def require_durable(self) -> None:
        """The same, and again after a power cut that takes what the start has not made durable."""
        self.require_all()
        self.cut()
        self.open()
        self.require_all()

    def last_byte(self) -> int:
        """Commit offset after the last byte of the log that is not zero, in the files as they are."""
        ends = [
            int(path.name) + len(path.read_bytes().rstrip(b"\0"))
            for path in (self.directory / "commitlog").iterdir()
            if any(path.read_bytes())
        ]
        return max(ends, default=0)


def life_that_lost_its_end(root: Path, *, syncs_queues: bool = False) -> FaultLife:
    """Return a life whose power was cut: its log ends after one message of four, its group had read all of them.

    Seeds with which the simulated disk writes the log back unasked are passed over.
    """
    for seed in range(1, 20):
        life = FaultLife(root / str(seed), "async", seed=seed)
        life.create()
        life.put(1)
        end = life.store.writer.appended_offset
        life.step("flush", "dispatch", "checkpoint")
        life.send(3)
        life.step("dispatch")
        if syncs_queues:
            life.store.writer._engine.queues.sync()
        life.store.reader.commit_offset("g", "t", 0, 4)
        life.store.reader.consumer_offsets.save()
        life.ledger.in_flight.clear()
        life.cut()
        if life.last_byte() <= end:
            return life
    raise AssertionError("with every seed the disk has written the log back")
