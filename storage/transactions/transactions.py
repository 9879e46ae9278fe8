"""Transactions of one store: halves are stored, ended by commit or rollback, and found again after a restart.

A commit is one batch of the log: the copies for consumers, then the op records. What a stop leaves of
it is completed at the next start (``recovery``), so that each half has one copy. The steps of one
transaction are made one after the other, under one lock.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.engine.copies import in_runs
from storage.engine.put_results import ASKS_FOR_DELAY
from storage.errors import (
    InvalidBatch,
    InvalidMessage,
    StoreBusy,
    StoreFull,
)
from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC
from storage.kernels.columns import (
    FEATURES,
)
from storage.log.followers import DurableNeed
from storage.transactions.half_records import (
    HalfEnd,
    committed_copies,
    halves_of,
    stored_halves,
    unique_keys,
)
from storage.transactions.halves import (
    CheckNotes,
    DecidedEnds,
    Half,
    HalfTable,
    RememberedEnds,
    known_offsets,
)
from storage.transactions.log_access import TransactionLog
from storage.transactions.progress import KeptProgress
from storage.transactions.recovery import load_transactions
from storage.transactions.values import (
    EndedTransaction,
    HalfStatus,
    PendingTransaction,
    PendingTransactions,
    TransactionState,
)

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges
    from storage.kernels.columns import ByteArray
    from storage.log.batches import Prepared

_LOG: Final = logging.getLogger(__name__)
TRANSACTION_BYTES_MAX: Final = 64 << 20
COMMIT_BYTES_MAX: Final = 16 << 20  # of transactions in one batch, but for a larger one
ID_BYTES_MAX: Final = 255
LISTED_MAX: Final = 10_000
FULL_RETRY_MS: Final = 1_000
_NO_BYTES: Final = np.empty(0, np.uint8)
_ENDS: Final = {True: TransactionState.COMMITTED, False: TransactionState.ROLLED_BACK}


class StoredHalves(NamedTuple):
    """What was stored of a transaction's messages. Repeats of stored ones count as stored."""

    transaction_ids: tuple[str, ...]  # of each message
    queue_offsets: tuple[int, ...]  # of each, in the half queue
    end_commit_offset: int


class _Ending(NamedTuple):
    transaction_id: str
    halves: list[Half]
    missing: list[Half]  # of them, those of which a copy is to be stored
    records: list[ByteArray]  # of these


class Transactions:
    """All transactions of a store. Methods are safe to call from several threads."""

    def __init__(
        self, engine: Engine, appender: Appender, topics: TopicChanges, clock: Clock
    ) -> None:
        config = engine.config
        self.log = TransactionLog(engine, appender, topics, clock)
        self.guard = threading.RLock()
        self.table = HalfTable()
        self._ended_counts: Counter[tuple[bool, str]] = Counter()  # halves, by commit and topic
        # A commit has to fit into one file of the log.
        self._bytes_max = min(TRANSACTION_BYTES_MAX, config.commit_log_file_size * 7 // 8)
        self._config = config
        self.notes = CheckNotes()
        self.ended = RememberedEnds()
        self.decided = DecidedEnds()
        self.progress = KeptProgress(self.log, self.table, self.decided, self.guard)
        self._is_recovered = False
        engine.followers.register("transactions", DurableNeed(self.needed_offset, engine.log))

    # ---- start and end

    def recover(self) -> None:
        """Find what is pending; nothing is served before."""
        kept = self.progress.load()
        loaded = load_transactions(
            self.log,
            kept,
            immunity_ms=self._config.transaction_timeout_ms,
            interval_ms=self._config.transaction_check_interval_ms,
            age_max_ms=self._config.transaction_age_max_ms,
        )
        self.progress.start(loaded.progress, kept)
        with self.guard:
            now_ms = self.log.clock.now_ms()
            for half in loaded.pending:
                self.table.add(half.not_ahead(now_ms))
            for transaction_id, (state, message_count) in loaded.ended.items():
                self.ended.add(transaction_id, state, message_count)
            self.decided.copied, self.decided.given_up = loaded.copied, loaded.given_up
            self.table.postpone([*loaded.copied, *loaded.given_up], now_ms)
            loaded.report()
            with suppress(StoreBusy, StoreFull):  # then a start finds them again
                if loaded.superseded:
                    self.log.ensure_topics(HALF_REMOVAL_TOPIC)
                    self.log.append(_NO_BYTES, 0, loaded.superseded, HalfEnd.AGAIN)
            self._is_recovered = True

    def keep_progress(self) -> None:
        """Keep how far transactions are, of an engine that still runs. Raises StoreError, OSError."""
        if self._is_recovered:  # else the table has none of what is pending
            self.log.engine.settle()
            self.progress.note()
            self.progress.save()
            self.progress.hand_over()

    def complete(self, transaction_id: str) -> str:
        """Store what is missing of a commit that was decided; return what is against it, empty if nothing is."""
        (ended,) = self._end([transaction_id], commit=True, topic="")
        return ended.problem

    def needed_offset(self) -> int | None:
        """Return the commit offset of the oldest pending half, None without any, 0 before ``recover``; waits for nobody."""
        first = self.table.first
        return (None if first is None else first.commit_offset) if self._is_recovered else 0

    # ---- storing halves

    def prepare(
        self,
        records: bytes | bytearray | memoryview,
        *,
        transaction_id: str = "",
        key_prefix: str = "",
        immunity_s: int = 0,
    ) -> StoredHalves:
        """Store messages, as a client encodes them, where consumers do not see them; all or none.

        All become part of the transaction that is named; without a name each is a transaction of its own, by its
        unique key. One that is pending already with its unique key and body is not stored again. With ``key_prefix`` the
        unique keys of all messages of a transaction begin with it, of those that are pending, too. ``immunity_s`` is how
        long the producer is not asked, where the record has no such property. Does not wait for durability.

        Raises TransactionExists where pending messages have other keys, InvalidBatch, TopicNotFound, QueueNotFound, InvalidMessage, StoreBusy, StoreFull, StoreFailed.
        """
        if len(transaction_id.encode()) > ID_BYTES_MAX or "\x02" in transaction_id:
            raise InvalidMessage(
                "transaction_id", f"must have at most {ID_BYTES_MAX} bytes, none of them U+0002"
            )
        appender = self.log.appender
        appender.check_open()
        sent = appender.prepare(records)
        if sent.features & ASKS_FOR_DELAY:
            delayed = sent.rows[: sent.record_count, FEATURES] & ASKS_FOR_DELAY
            raise InvalidBatch(
                int(np.flatnonzero(delayed)[0]), "a message of a transaction cannot be delayed"
            )
        for key in sent.queues:
            appender.check_queue(key)
        keys = list(unique_keys(sent))
        ids = [transaction_id or key for key in keys]
        self.log.ensure_topics(HALF_TOPIC, HALF_REMOVAL_TOPIC)
        with self.guard, self.log.topics_lock:
            for key in sent.queues:  # again: while the locks were waited for, some may have gone
                appender.check_queue(key)
            for each in set(ids):
                if each in self.decided or self.ended.get(each) is not None:
                    raise InvalidMessage("transaction_id", f"{each!r} has ended")
            known = known_offsets(self.table, ids, keys, sent, key_prefix, self._bytes_max)
            chosen = [row for row, place in enumerate(known) if place is None]
            if chosen:
                pending, pending_max = len(self.table), self._config.transaction_pending_max
                if pending + len(chosen) > pending_max:
                    problem = f"{pending} half messages are pending, of {pending_max} at most"
                    raise StoreBusy(problem, retry_delay_ms=FULL_RETRY_MS)
                halves = halves_of(
                    sent, [ids[row] for row in chosen], chosen, immunity_s=immunity_s
                )
                for row, half in zip(
                    chosen, self._store(sent, halves, chosen, ids, keys, immunity_s), strict=True
                ):
                    known[row] = half.queue_offset
            end = self.log.engine.log.appended_offset
        return StoredHalves(tuple(ids), tuple(place or 0 for place in known), end)

    def _store(
        self, sent: Prepared, halves: ByteArray, chosen: Sequence[int], ids: Sequence[str],
        keys: Sequence[str], immunity_s: int,
    ) -> list[Half]:  # fmt: skip
        rows, stored_ms = self.log.append(halves, len(chosen))
        stored = stored_halves(
            sent, chosen, [ids[row] for row in chosen], [keys[row] for row in chosen], rows, stored_ms,
            immunity_s=immunity_s, immunity_ms=self._config.transaction_timeout_ms,
            age_max_ms=self._config.transaction_age_max_ms,
        )  # fmt: skip
        for half in stored:
            self.table.add(half)
        return stored

    # ---- ending

    def end(
        self, transaction_ids: Sequence[str], *, commit: bool, topic: str = ""
    ) -> tuple[list[EndedTransaction], int]:
        """Commit or roll back transactions, each whole; return what became of each, and the end of the log.

        Of one that has ended the first answer is returned again, for as long as it is remembered: the
        last 65,536, and 10,000 messages' after a restart. With ``topic`` only transactions whose
        messages are all for it are ended. Does not wait for durability.

        Raises StoreBusy, StoreFull, StoreFailed; then a part of the transactions may have ended.
        """
        self.log.appender.check_open()
        with self.guard:
            answers: dict[str, EndedTransaction] = {}
            bytes_max = min(COMMIT_BYTES_MAX, self._bytes_max)
            for run in in_runs(dict.fromkeys(transaction_ids), self.table.size_of, bytes_max):
                answers.update(
                    (each.transaction_id, each)
                    for each in self._end(run, commit=commit, topic=topic)
                )
            end = self.log.engine.log.appended_offset
        return [answers[each] for each in transaction_ids], end

    def _end(
        self, transaction_ids: Sequence[str], *, commit: bool, topic: str
    ) -> list[EndedTransaction]:
        answers = []
        endings: list[_Ending] = []
        copied = self.decided.copied
        decided = [] if commit else [each for each in transaction_ids if each in copied]
        for transaction_id in decided:  # they were stopped
            (found,) = self._end([transaction_id], commit=True, topic=topic)
            is_other = found.state is TransactionState.OTHER_TOPIC
            answers.append(found._replace(already=not is_other))
        if any(each in self.table for each in transaction_ids):
            self.log.ensure_topics(HALF_REMOVAL_TOPIC)
        # A topic that is deleted and created again in between would get what was for the one before.
        with self.log.topics_lock:
            for transaction_id in transaction_ids:
                if transaction_id in decided:
                    continue
                ending = self._ending(transaction_id, commit=commit, topic=topic)
                if isinstance(ending, EndedTransaction):
                    answers.append(ending)
                else:
                    endings.append(ending)
            if endings:
                self._append(endings, commit=commit)
        answers += [
            self.forget(ending.transaction_id, _ENDS[commit], len(ending.halves))
            for ending in endings
        ]
        return answers

    def _append(self, endings: Sequence[_Ending], *, commit: bool) -> None:
        """Append the copies and op records of transactions; all or none."""
        missing = [half for ending in endings for half in ending.missing]
        removed = [half.queue_offset for ending in endings for half in ending.halves]
        if commit and missing:
            records = [record for ending in endings for record in ending.records]
            copies = committed_copies(records, [(half.topic, half.queue_id) for half in missing])
            self.log.append(copies, len(missing), removed, HalfEnd.COMMIT)
        else:
            self.log.append(_NO_BYTES, 0, removed, HalfEnd.COMMIT if commit else HalfEnd.ROLLBACK)
        self._ended_counts.update((commit, half.topic) for each in endings for half in each.halves)

    def _ending(
        self, transaction_id: str, *, commit: bool, topic: str
    ) -> _Ending | EndedTransaction:
        """Return what is to be appended for a transaction, or why nothing is."""
        halves = self.table.of(transaction_id)
        if not halves:
            ended = self.ended.get(transaction_id)
            if ended is None:
                return EndedTransaction(transaction_id, TransactionState.NOT_FOUND, 0)
            return EndedTransaction(transaction_id, ended[0], ended[1], already=True)
        count = len(halves)
        if transaction_id in self.decided.given_up:
            return EndedTransaction(transaction_id, TransactionState.GIVEN_UP, count, already=True)
        if topic and any(half.topic != topic for half in halves):
            return EndedTransaction(transaction_id, TransactionState.OTHER_TOPIC, count)
        copied = self.decided.copied.get(transaction_id, set())
        missing: list[Half] = []
        records: list[ByteArray] = []
        if commit:
            for half in halves:
                if half.commit_offset in copied:
                    continue
                if not self.log.has_topic(half.topic, half.commit_offset):
                    if copied:  # it ends with what can be stored of it
                        continue
                    problem = f"topic {half.topic!r} was deleted; roll the transaction back"
                    return EndedTransaction(
                        transaction_id, TransactionState.TOPIC_GONE, count, problem=problem
                    )
                record, problem = self.log.read(half.commit_offset)
                if record is None:
                    problem = f"the half message at commit offset {half.commit_offset}: {problem}"
                    return EndedTransaction(
                        transaction_id, TransactionState.DAMAGED, count, problem=problem
                    )
                missing.append(half)
                records.append(record)
        return _Ending(transaction_id, halves, missing, records)

    def forget(self, transaction_id: str, state: TransactionState, count: int) -> EndedTransaction:
        """Take an ended transaction from the table and remember how it ended; under ``guard``."""
        self.table.remove(transaction_id)
        self.notes.forget(transaction_id)
        self.decided.forget(transaction_id)
        self.ended.add(transaction_id, state, count)
        return EndedTransaction(transaction_id, state, count)

    # ---- looking

    def status(self) -> HalfStatus:
        """Return what is pending; waits for nobody."""
        return HalfStatus(len(self.table), self.table.first_born_ms() or 0)

    def ended_counts(self, *, commit: bool) -> dict[str, int]:
        """Return how many half messages were committed, or rolled back, by topic since the start."""
        counts = self._ended_counts.copy().items()
        return {topic: count for (committed, topic), count in counts if committed is commit}

    def pending(self) -> PendingTransactions:
        """Return the transactions that nobody has ended, the oldest at the front, at most 10,000, and their number."""
        with self.guard:
            listed = [self._pending(each) for each in self.table.ids()[:LISTED_MAX]]
            return PendingTransactions(listed, self.table.transaction_count())

    def _pending(self, transaction_id: str) -> PendingTransaction:
        halves = self.table.of(transaction_id)
        gone = [half for half in halves if not self.log.has_topic(half.topic, half.commit_offset)]
        return PendingTransaction(
            transaction_id=transaction_id,
            topics=tuple(dict.fromkeys(half.topic for half in halves)),
            message_count=len(halves),
            born_ms=min(half.born_ms for half in halves),
            due_ms=min(half.due_ms for half in halves),
            check_count=max(half.check_count for half in halves),
            problem=f"topic {gone[0].topic!r} was deleted" if gone else "",
        )
