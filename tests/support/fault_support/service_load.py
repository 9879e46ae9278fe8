"""Producers and a consumer of running services; what they are told goes into the ledger."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import grpc
from fault_ledger import FaultFound, Ledger, Place, require
from real_processes import until

from penstock import Client, Message, PenstockError
from services.rpc.status import STATUS_OF

TOPIC = "load"
GROUP = "consumers"
TOGETHER = 5
# What the table of statuses has, and what a channel says by itself of a service that is gone.
DOCUMENTED = {
    *STATUS_OF.values(), grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip


class ServiceLoad:
    """Queue 0 gets single messages, queue 1 several a call; a consumer pulls both and commits its progress."""

    def __init__(
        self, addresses: Mapping[str, str], ledger: Ledger, *, body_bytes: int = 200,
        timeout_s: float = 5.0,
    ) -> None:  # fmt: skip
        self.ledger = ledger
        self.codes: Counter[tuple[str, grpc.StatusCode]] = Counter()
        self.problems: list[str] = []  # answers that no page explains
        self.consumed = 0
        self.full = 0  # refusals for want of space
        self.client = Client(**addresses, timeout_s=timeout_s)
        self._filler = bytes(body_bytes)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(work,), daemon=True)
            for work in (self._produce_one, self._produce_several, self._consume)
        ]
        self._number = 0
        self._at = {0: 0, 1: 0}
        self._again = threading.Event()

    @property
    def acknowledged(self) -> int:
        return len(self.ledger.entries)

    def start(self) -> ServiceLoad:
        """Create the topic unless it is there, and begin."""
        if TOPIC not in self.ledger.topics:
            self.client.create_topic(TOPIC, queues=2, timeout_s=60)
            self.ledger.topics[TOPIC] = 2
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(60)
        self.client.close()

    def read_again(self) -> None:
        """Have the consumer begin at the queues' beginnings; its group's progress stays."""
        self._again.set()

    def goes_on(self, messages: int = 10, seconds: float = 60) -> float:
        """Wait until so many more are acknowledged; return the seconds it took."""
        before, began = self.acknowledged, time.monotonic()
        until(lambda: self.acknowledged >= before + messages or bool(self.problems), seconds)
        require(not self.problems, self.problems[:5])
        return time.monotonic() - began

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                work()
            except PenstockError as error:
                self.codes[work.__name__.strip("_"), error.code] += 1
                self.full += "space" in error.message
                if error.code not in DOCUMENTED or "Traceback" in error.message:
                    self.problems.append(f"{work.__name__}: {error.code} {error.message}")
                self._stop.wait(0.02)
            except FaultFound as found:
                self.problems.append(f"{work.__name__}: {found}")
                self._stop.wait(1)

    def _new(self) -> tuple[str, bytes]:
        with self._lock:
            self._number += 1
            return f"k{self._number}", b"%d " % self._number + self._filler

    def _produce_one(self) -> None:
        key, body = self._new()
        self.ledger.in_flight.add(body)
        stored = self.client.produce(TOPIC, body, keys=(key,), queue_id=0)
        self.ledger.enter_answer(stored, body, key)

    def _produce_several(self) -> None:
        made = [self._new() for _ in range(TOGETHER)]
        self.ledger.in_flight.update(body for _, body in made)
        answers = self.client.produce_many(
            [Message(TOPIC, body, keys=(key,), queue_id=1) for key, body in made]
        )
        for stored, (key, body) in zip(answers, made, strict=True):
            self.ledger.enter_answer(stored, body, key)

    def _consume(self) -> None:
        """Pull both queues, then commit: a commit that is refused keeps the consumer from no queue."""
        if self._again.is_set():
            self._again.clear()
            self._at = {0: 0, 1: 0}
        for queue_id in self._at:
            pulled = self.client.pull(TOPIC, queue_id, self._at[queue_id], max_messages=1000)
            if pulled.damaged:
                self.problems.append(f"damaged: {pulled.damaged}")
            for record in pulled.records:
                place = Place(TOPIC, queue_id, record.queue_offset)
                self.ledger.seen[place] = bytes(record.body)
            self.consumed += len(pulled.records)
            self._at[queue_id] = pulled.next_offset
        for queue_id, next_offset in self._at.items():
            group = (GROUP, TOPIC, queue_id)
            if next_offset > self.ledger.groups.get(group, 0):
                self.ledger.group_attempts.setdefault(group, set()).add(next_offset)
                self.client.commit_offset(GROUP, TOPIC, queue_id, next_offset)
                self.ledger.groups[group] = next_offset
        self._stop.wait(0.02)
