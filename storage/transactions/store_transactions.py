"""The transactions of a writer, wired: the table of pending ones, and the worker that checks them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.errors import StoreError
from storage.log.followers import DurableNeed
from storage.transactions.checks import Ask, TransactionChecks
from storage.transactions.log_access import TransactionLog
from storage.transactions.transactions import Transactions
from storage.transactions.values import HalfStatus

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges
    from storage.transactions.transactions import StoredHalves
    from storage.transactions.values import EndedTransaction, PendingTransactions
    from storage.workers import Workers


class StoreTransactions:
    """All transactions of a store. Methods are safe to call from several threads."""

    def __init__(
        self,
        engine: Engine,
        appender: Appender,
        topics: TopicChanges,
        clock: Clock,
        *,
        workers: Workers | None = None,
    ) -> None:
        config = engine.config
        self._engine = engine
        self._is_recovered = False
        self._transactions = Transactions(
            TransactionLog(engine, appender, topics, clock),
            immunity_ms=config.transaction_timeout_ms,
            interval_ms=config.transaction_check_interval_ms,
            age_max_ms=config.transaction_age_max_ms,
            pending_max=config.transaction_pending_max,
        )
        self._checks = TransactionChecks(
            self._transactions,
            clock,
            interval_ms=config.transaction_check_interval_ms,
            check_max=config.transaction_check_max,
            age_max_ms=config.transaction_age_max_ms,
            workers=workers,
        )
        needs = DurableNeed(self._transactions.needed_offset, engine.log)
        engine.followers.register("transactions", needs)
        topics.count_upcoming("messages of pending transactions", self._transactions.upcoming_in)

    def start(self) -> None:
        """Find what is pending, complete commits that were stopped, and begin to check."""
        self._transactions.recover()
        self._is_recovered = True
        self._checks.start()

    def stop(self) -> None:
        """End checks, and keep for the next start, ours or a broker's, how far transactions are."""
        with suppress(StoreError, OSError):
            self._checks.stop()
            if not self._is_recovered:  # the table has none of what is pending
                return
            self._engine.settle()
            progress = self._transactions.progress
            progress.note()
            progress.save()
            progress.hand_over()

    def prepare(
        self,
        records: bytes | bytearray | memoryview,
        *,
        transaction_id: str = "",
        key_prefix: str = "",
        immunity_s: int = 0,
    ) -> StoredHalves:
        """See ``Transactions.prepare``."""
        return self._transactions.prepare(
            records, transaction_id=transaction_id, key_prefix=key_prefix, immunity_s=immunity_s
        )

    def end(
        self, transaction_ids: Sequence[str], *, commit: bool, topic: str = ""
    ) -> tuple[list[EndedTransaction], int]:
        """See ``Transactions.end``."""
        return self._transactions.end(transaction_ids, commit=commit, topic=topic)

    @property
    def problem(self) -> str:
        """What keeps the worker from its checks or a transaction from its end; empty while all is well."""
        return self._checks.problem

    def status(self) -> HalfStatus:
        """Return what is pending; waits for nobody."""
        table = self._transactions.table
        return HalfStatus(len(table), table.first_born_ms() or 0)

    def pending_counts(self) -> dict[str, int]:
        """Return how many half messages are pending by topic; waits for nobody."""
        return self._transactions.table.topic_counts()

    def ended_counts(self, *, commit: bool) -> dict[str, int]:
        """Return how many half messages were committed, or rolled back, by topic since the start."""
        counts = self._transactions.ended_counts.copy().items()
        return {topic: count for (committed, topic), count in counts if committed is commit}

    def pending(self) -> PendingTransactions:
        """See ``Transactions.pending``."""
        return self._transactions.pending()

    def watch(self, topics: Sequence[str], ask: Ask) -> int:
        """See ``TransactionChecks.watch``."""
        return self._checks.watch(topics, ask)

    def unwatch(self, number: int) -> None:
        """See ``TransactionChecks.unwatch``."""
        self._checks.unwatch(number)

    def uncount(self, transaction_id: str, check_count: int) -> None:
        """See ``TransactionChecks.uncount``."""
        self._checks.uncount(transaction_id, check_count)
