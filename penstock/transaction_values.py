"""Results of calls about transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.transactions.values import PendingTransaction as PendingTransaction
from storage.transactions.values import PendingTransactions as PendingTransactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """The outcome of a request to end a transaction.

    ``state`` is ``committed``, ``rolled back``, ``given up``, ``not found``, ``other topic``, ``topic gone``
    or ``damaged``; with the last three it is still pending. ``already``: an earlier call had ended it.
    """

    transaction_id: str
    state: str
    message_count: int
    already: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCheck:
    """The question whether to commit a transaction. ``records`` are its messages, as stored."""

    transaction_id: str
    topics: tuple[str, ...]
    check_count: int
    records: tuple[Record, ...]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)
