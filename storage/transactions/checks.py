"""The worker that asks producers about transactions which nobody has ended, by a broker's rules.

A half is due when its immunity is over, then at each interval. It is stored again with its count of
checks raised, and one producer of its topic is asked. After ``check_max`` checks, or when it is older
than ``age_max_ms``, it goes to the topic of those that were given up. Unlike a broker's, a check does
not count when there was nobody to ask: the half waits. The age may be a clock's that was set, or the
time for which there was no writer: who is too old is asked once more, or waits for somebody to ask as
long as ``check_max`` checks take. Where the clock is set back by more than an interval, so is what was due.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.errors import StoreBusy, StoreError, StoreFailed, StoreFull
from storage.format.names import GIVEN_UP_TOPIC, HALF_REMOVAL_TOPIC
from storage.kernels.columns import COMMIT_OFFSET, QUEUE_OFFSET, SIZE
from storage.transactions.half_records import HalfEnd, given_up_copies, halves_again
from storage.transactions.values import TransactionCheck, TransactionState
from storage.workers import Worker, Workers

if TYPE_CHECKING:
    from storage.kernels.columns import ByteArray
    from storage.transactions.halves import Half
    from storage.transactions.transactions import Transactions

_LOG: Final = logging.getLogger(__name__)
LOOK_S: Final = 1.0
SAVE_INTERVAL_MS: Final = 10_000
HALVES_AT_ONCE: Final = 1_024
AGAIN_BYTES_MAX: Final = 4 << 20  # in one batch, but for a larger transaction
FULL_RETRY_S: Final = 1.0
_NO_BYTES: Final = np.empty(0, np.uint8)
_PROGRESS: Final = ("",)  # stands for no transaction

Ask = Callable[[TransactionCheck], bool | None]
"""Passes a question on; False if it cannot, and then it does not count as asked."""


class UnreadableHalf(StoreError):
    """A half message of a pending transaction is damaged."""


class _AskedTransaction(NamedTuple):
    """A transaction that a producer was asked about, and what is to be stored again of it."""

    transaction_id: str
    halves: list[Half]
    records: list[ByteArray]
    counts: list[int]


class TransactionChecks(Worker):
    """Checks the transactions of one store; ``watch`` registers who can be asked."""

    full_retry_s = FULL_RETRY_S

    def __init__(self, transactions: Transactions, *, workers: Workers | None = None) -> None:
        super().__init__("transactions", workers=workers)
        self._transactions = transactions
        self._clock = clock = transactions.log.clock
        config = transactions.log.engine.config
        self._interval_ms = config.transaction_check_interval_ms
        self._check_max = config.transaction_check_max
        self._age_max_ms = config.transaction_age_max_ms
        self._watchers: dict[str, dict[int, Ask]] = {}  # by topic and number
        self._watched: dict[int, frozenset[str]] = {}  # by number
        self._numbers = itertools.count()
        self._turn = itertools.count()
        self._notes = transactions.notes
        self._looked_ms = self._saved_ms = clock.now_ms()

    def start(self) -> None:
        """Find what is pending, complete commits that were stopped, and begin to check; nothing is served before."""
        transactions = self._transactions
        transactions.recover()
        decided = [*transactions.decided.copied]
        with transactions.guard, suppress(StoreBusy, StoreFull):  # else a step completes them
            self._check(decided, self._clock.now_ms())
        super().start()

    def close(self) -> None:
        """End it; what it does not keep then, a start reads."""
        with suppress(StoreError):
            self.stop()

    def finish(self) -> None:
        """Keep for the next start, ours or a broker's, how far transactions are."""
        with suppress(StoreError, OSError):
            self._transactions.keep_progress()

    # ---- who can be asked

    def watch(self, topics: Sequence[str], ask: Ask) -> int:
        """Have ``ask`` called, from any thread, with checks about the topics; return a number for ``unwatch``.

        Halves of these topics that waited for somebody to ask are looked at soon.
        """
        number = next(self._numbers)
        with self._transactions.guard:
            watched = frozenset(topics)
            self._watched[number] = watched
            for topic in watched:
                self._watchers.setdefault(topic, {})[number] = ask
            self._notes.wake(watched)
        return number

    def unwatch(self, number: int) -> None:
        """Ask no more; an unknown number is no error."""
        with self._transactions.guard:
            for topic in self._watched.pop(number, ()):
                del self._watchers[topic][number]
                if not self._watchers[topic]:
                    del self._watchers[topic]

    def uncount(self, transaction_id: str, check_count: int) -> None:
        """Take back a question that reached nobody, unless another one was asked or it has ended since."""
        with self._transactions.guard:
            halves = self._transactions.table.of(transaction_id)
            if halves and max(half.check_count for half in halves) == check_count:
                self._transactions.table.uncount(transaction_id)
                self._notes.wait(transaction_id, (half.topic for half in halves))
                if transaction_id in self._notes.late:
                    self._notes.late[transaction_id] -= self._check_max

    def _watcher_of(self, halves: Sequence[Half]) -> Ask | None:
        found: dict[int, Ask] = {}
        for topic in {half.topic for half in halves}:
            of_topic = self._watchers.get(topic, {})
            found = {**found, **of_topic} if found else of_topic
        place = next(self._turn) % len(found) if found else 0
        return next(itertools.islice(found.values(), place, None), None)

    # ---- the worker

    def idle_s(self) -> float:
        """Return how often it is looked at what is due."""
        return LOOK_S

    def work(self) -> float | None:
        """Check what is due; keep the progress now and then."""
        transactions = self._transactions
        now_ms = self._clock.now_ms()
        more = False
        with transactions.guard:
            if now_ms < self._looked_ms - self._interval_ms:  # the clock was set back
                transactions.table.move_dues(now_ms - self._looked_ms)
            self._looked_ms = now_ms
            woken = self._notes.woken(HALVES_AT_ONCE)
            transactions.table.postpone(woken, now_ms)
            due = transactions.table.due(now_ms, HALVES_AT_ONCE)
            if due:
                more = self._check(due, now_ms)
            more |= len(woken) >= HALVES_AT_ONCE
        if abs(now_ms - self._saved_ms) >= SAVE_INTERVAL_MS:
            self._saved_ms = now_ms
            transactions.progress.note()
        with self._apart(_PROGRESS, now_ms):
            transactions.progress.save()
        return 0.0 if more else None

    @property
    def problem(self) -> str:
        """Why it has failed, has no room, or what keeps it from a part of its work; empty while all is well."""
        trouble = next(iter(self._notes.troubles.copy().values()), "")
        return super().problem or trouble

    @contextmanager
    def _apart(self, transaction_ids: Sequence[str], now_ms: int) -> Iterator[None]:
        """What goes wrong with some is said, and keeps no others from their checks: they are put off."""
        try:
            yield
        except (StoreBusy, StoreFull, StoreFailed):
            raise
        except (StoreError, OSError) as error:
            name = transaction_ids[0]
            trouble = (
                f"transaction {name}: {error}" if name else f"progress of transactions: {error}"
            )
            if self._notes.troubles.get(name) != trouble:
                _LOG.error("%s", trouble)
            if not name or name in self._transactions.table:
                self._notes.troubles[name] = trouble
            self._transactions.table.postpone(transaction_ids, now_ms + self._interval_ms)
        else:
            self._notes.troubles.pop(transaction_ids[0], None)

    def _check(self, transaction_ids: Sequence[str], now_ms: int) -> bool:
        """Look at transactions that are due; return whether there may be more."""
        transactions = self._transactions
        table, log = transactions.table, transactions.log
        asked: list[tuple[Ask, str, list[Half]]] = []
        given_up: list[str] = []
        gone: list[str] = []
        waiting: list[str] = []
        for transaction_id in transaction_ids:
            halves = table.of(transaction_id)
            if transaction_id in transactions.decided.copied:
                with self._apart([transaction_id], now_ms):
                    if problem := transactions.complete(transaction_id):
                        raise UnreadableHalf(problem)
            elif transaction_id in transactions.decided.given_up:
                given_up.append(transaction_id)
            elif not all(log.has_topic(half.topic, half.commit_offset) for half in halves):
                gone.append(transaction_id)
            elif max(half.check_count for half in halves) >= self._check_max or self._is_too_late(
                transaction_id, halves, now_ms
            ):
                given_up.append(transaction_id)
            elif (ask := self._watcher_of(halves)) is None:
                waiting.append(transaction_id)
                self._notes.wait(transaction_id, (half.topic for half in halves))
            else:
                asked.append((ask, transaction_id, halves))
        table.postpone(waiting, now_ms + self._interval_ms)
        if gone:
            _LOG.warning("%d transactions are rolled back: their topics were deleted", len(gone))
            with self._apart(gone, now_ms):
                transactions.end(gone, commit=False)
        if given_up:
            self._give_up(given_up, now_ms)
        if asked:
            self._ask(asked, now_ms)
        return len(transaction_ids) >= HALVES_AT_ONCE

    def _is_too_late(self, transaction_id: str, halves: Sequence[Half], now_ms: int) -> bool:
        """Whether one that is too old has had its last chance; this is one unless it had."""
        if not self._is_too_old(halves, now_ms):
            self._notes.late.pop(transaction_id, None)
            return False
        count = self._notes.late.get(transaction_id, 0)
        self._notes.late[transaction_id] = count + 1
        return count >= self._check_max

    def _is_too_old(self, halves: Sequence[Half], now_ms: int) -> bool:
        return now_ms - min(half.born_ms for half in halves) > self._age_max_ms

    def _give_up(self, transaction_ids: Sequence[str], now_ms: int) -> None:
        for transaction_id in transaction_ids:
            with self._apart([transaction_id], now_ms):
                self._give_up_one(transaction_id, now_ms)

    def _give_up_one(self, transaction_id: str, now_ms: int) -> None:
        """Copy a transaction's messages; a damaged one may be mended from a backup until it is too old, and is lost then."""
        transactions = self._transactions
        transactions.log.ensure_topics(GIVEN_UP_TOPIC, HALF_REMOVAL_TOPIC)
        halves = transactions.table.of(transaction_id)
        stored = transactions.decided.given_up.get(transaction_id, set())
        records, problems = self._read(
            [each for each in halves if each.commit_offset not in stored]
        )
        if problems and not self._is_too_old(halves, now_ms):
            raise UnreadableHalf(problems[0])
        removed = [half.queue_offset for half in halves]
        copies = given_up_copies(records) if records else _NO_BYTES
        transactions.log.append(copies, len(records), removed, HalfEnd.GIVEN_UP)
        transactions.forget(transaction_id, TransactionState.GIVEN_UP, len(halves))
        for problem in problems:
            _LOG.error("a message of transaction %s is lost: %s", transaction_id, problem)
        _LOG.warning(
            "transaction %s of %s is given up after %d checks; its messages are in %s",
            transaction_id, halves[0].topic, halves[0].check_count, GIVEN_UP_TOPIC,
        )  # fmt: skip

    def _ask(self, asked: Sequence[tuple[Ask, str, list[Half]]], now_ms: int) -> None:
        """Ask producers; what was asked about is stored again, many transactions in one batch."""
        again: list[_AskedTransaction] = []
        size = 0
        for ask, transaction_id, halves in asked:
            with self._apart([transaction_id], now_ms):
                records = self._records(halves)
                self._transactions.table.postpone([transaction_id], now_ms + self._interval_ms)
                counts = [half.check_count + 1 for half in halves]
                check = TransactionCheck(
                    transaction_id,
                    tuple(dict.fromkeys(half.topic for half in halves)),
                    max(counts),
                    tuple(record.tobytes() for record in records),
                )
                if ask(check) is False:
                    self._notes.wait(transaction_id, check.topics)
                    continue
                if transaction_id in self._notes.late:
                    self._notes.late[transaction_id] += self._check_max
                added = sum(half.size for half in halves)
                if again and size + added > AGAIN_BYTES_MAX:
                    self._store_again(again, now_ms)
                    again, size = [], 0
                again.append(_AskedTransaction(transaction_id, halves, records, counts))
                size += added
        if again:
            self._store_again(again, now_ms)

    def _store_again(self, again: Sequence[_AskedTransaction], now_ms: int) -> None:
        """Store halves again in one batch; where that is refused, each transaction by itself."""
        try:
            self._append_again(again)
        except (StoreBusy, StoreFull, StoreFailed):
            raise
        except (StoreError, OSError):
            for each in again:
                with self._apart([each.transaction_id], now_ms):
                    self._append_again([each])

    def _append_again(self, again: Sequence[_AskedTransaction]) -> None:
        transactions = self._transactions
        halves = [half for each in again for half in each.halves]
        counts = [count for each in again for count in each.counts]
        rows, stored_ms = transactions.log.append(
            halves_again([record for each in again for record in each.records], counts),
            len(halves),
            [half.queue_offset for half in halves],
            HalfEnd.AGAIN,
        )
        for each in again:
            transactions.table.remove(each.transaction_id)
        placed = rows[:, (QUEUE_OFFSET, COMMIT_OFFSET, SIZE)].tolist()
        for half, count, (queue_offset, commit_offset, size) in zip(
            halves, counts, placed, strict=True
        ):
            transactions.table.add(
                half._replace(
                    queue_offset=queue_offset,
                    commit_offset=commit_offset,
                    size=size,
                    due_ms=stored_ms + self._interval_ms,
                    check_count=count,
                )
            )

    def _records(self, halves: Sequence[Half]) -> list[ByteArray]:
        """Return the halves' records. Raises UnreadableHalf."""
        found, problems = self._read(halves)
        if problems:
            raise UnreadableHalf(problems[0])
        return found

    def _read(self, halves: Sequence[Half]) -> tuple[list[ByteArray], list[str]]:
        """Return the halves' records, and what is wrong with those that cannot be read."""
        found, problems = [], []
        for half in halves:
            record, problem = self._transactions.log.read(half.commit_offset)
            if record is None:
                problems.append(
                    f"the half message at commit offset {half.commit_offset}: {problem}"
                )
            else:
                found.append(record)
        return found, problems
