"""What is asked and answered of transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class TransactionState(StrEnum):
    """What a transaction is, as far as is known."""

    PENDING = "pending"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"  # nobody ended it within the checks that there are
    NOT_FOUND = "not found"  # never begun, or ended too long ago
    OTHER_TOPIC = "other topic"  # it is pending, and its messages are for another topic
    TOPIC_GONE = "topic gone"  # it is pending, and cannot be committed
    DAMAGED = "damaged"  # it is pending, and cannot be committed


class EndedTransaction(NamedTuple):
    """What became of a transaction that was to be ended. ``already``: it had been before."""

    transaction_id: str
    state: TransactionState
    message_count: int
    already: bool = False
    problem: str = ""


class HalfStatus(NamedTuple):
    """How many half messages are pending, and when the oldest was stored; 0: there is none."""

    pending_count: int
    oldest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransaction:
    """A transaction that nobody has ended; ``due_ms`` is when a producer is asked next."""

    transaction_id: str
    topics: tuple[str, ...]
    message_count: int
    born_ms: int
    due_ms: int
    check_count: int
    problem: str


class PendingTransactions(list[PendingTransaction]):
    """The oldest of the transactions that nobody has ended, 10,000 at most; ``pending_count``: of all of them."""

    def __init__(self, listed: Iterable[PendingTransaction], pending_count: int) -> None:
        super().__init__(listed)
        self.pending_count = pending_count


class TransactionCheck(NamedTuple):
    """A question to a producer: what is to become of this transaction?"""

    transaction_id: str
    topics: tuple[str, ...]
    check_count: int
    halves: tuple[bytes, ...]  # the stored half messages, whole records
