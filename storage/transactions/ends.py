"""How transactions end: ends that are remembered, and ends that are decided and not complete."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.errors import StoreBusy, StoreError, StoreFailed, StoreFull

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.transactions.values import EndedTransaction, TransactionState

_LOG: Final = logging.getLogger(__name__)
REMEMBERED_MAX: Final = 65_536


class RememberedEnds:
    """State and number of messages of what ended last, by transaction id: who asks again gets the first answer."""

    def __init__(self) -> None:
        self._ends: OrderedDict[str, tuple[TransactionState, int]] = OrderedDict()

    def get(self, transaction_id: str) -> tuple[TransactionState, int] | None:
        """Return how a transaction ended; None if that is not known."""
        return self._ends.get(transaction_id)

    def add(self, transaction_id: str, state: TransactionState, message_count: int) -> None:
        """Remember how a transaction ended; the one that ended first is forgotten first."""
        self._ends[transaction_id] = state, message_count
        self._ends.move_to_end(transaction_id)
        if len(self._ends) > REMEMBERED_MAX:
            self._ends.popitem(last=False)


class DecidedEnds:
    """Commits of which some copies are stored and their op records are not; and give-ups, which the checks complete.

    Whoever uses it holds the lock of ``Transactions``.
    """

    def __init__(self, clock: Clock, *, interval_ms: int) -> None:
        self.copied: dict[str, set[int]] = {}  # by id; commit offsets of halves that have a copy
        self.given_up: dict[str, set[int]] = {}  # the same of those that nobody ended
        self._clock = clock
        self._interval_ms = interval_ms
        self._stuck: dict[str, tuple[str, int]] = {}  # by id; why, and when that was found

    def __contains__(self, transaction_id: str) -> bool:
        return transaction_id in self.copied or transaction_id in self.given_up

    def first_commit_offset(self) -> int | None:
        """Return the lowest commit offset of a half that has a copy; None if there is none."""
        found = *self.copied.values(), *self.given_up.values()
        return min(map(min, found), default=None)

    def complete(self, end: Callable[[str], EndedTransaction]) -> None:
        """Have ``end`` called with each that is not known to be stuck, or was found so an interval ago.

        Raises StoreBusy, StoreFull, StoreFailed; any other error is that of one commit, and is logged once.
        """
        for transaction_id in list(self.copied):
            former, found_ms = self._stuck.get(transaction_id, ("", 0))
            now_ms = self._clock.now_ms()
            if former and abs(now_ms - found_ms) < self._interval_ms:
                continue
            try:
                problem = end(transaction_id).problem
            except (StoreBusy, StoreFull, StoreFailed):
                raise
            except (StoreError, OSError) as error:
                problem = str(error)
            if problem and transaction_id in self.copied:
                self._stuck[transaction_id] = problem, now_ms
                if problem != former:
                    _LOG.error("transaction %s cannot be completed: %s", transaction_id, problem)

    def forget(self, transaction_id: str) -> None:
        """Drop one that is complete; others are no error."""
        self.copied.pop(transaction_id, None)
        self.given_up.pop(transaction_id, None)
        self._stuck.pop(transaction_id, None)

    @property
    def problem(self) -> str:
        """What keeps one of them from its end; empty if nothing is known. From any thread."""
        for transaction_id, (problem, _) in list(self._stuck.items()):
            return f"transaction {transaction_id} cannot be completed: {problem}"
        return ""
