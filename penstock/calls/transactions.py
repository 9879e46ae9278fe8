"""Transactions: their messages, their ends, and the checks of those that are open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.operation import operation, operation_of
from penstock.errors import TransactionRefused
from penstock.record import Record, Records
from penstock.requests import build, check_size, value_of
from penstock.retry import Repeat
from penstock.v1 import transactions_pb2 as pb
from storage.transactions.values import PendingTransaction as PendingTransaction
from storage.transactions.values import PendingTransactions as PendingTransactions

_STATES: Final = {
    number: name.removeprefix("TRANSACTION_").lower().replace("_", " ")
    for name, number in pb.TransactionState.items()
}


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


def prepare(
    records: bytes,
    *,
    transaction_id: str,
    key_prefix: str,
    immunity_s: int,
    bytes_max: int,
    timeout_s: float | None,
) -> Call[tuple[str, ...]]:
    """Store half messages; returns their transaction ids. A repeat stores nothing again."""
    size = len(records) + len(transaction_id) + len(key_prefix) + 32
    check_size("records", size, bytes_max)
    request = build(
        pb.PrepareRequest,
        records=records,
        transaction_id=transaction_id,
        key_prefix=key_prefix,
        immunity_s=immunity_s,
    )
    return Call(
        wire.PREPARE,
        request,
        lambda answer: tuple(answer.transaction_ids),
        repeat=Repeat.KNOWN,
        timeout_s=timeout_s,
    )


def end_transactions(
    transaction_ids: Sequence[str],
    *,
    commit: bool,
    topic: str = "",
    timeout_s: float | None = None,
) -> Call[list[EndedTransaction]]:
    """Commit or roll back transactions, each whole; return what became of each.

    With ``topic`` only those whose messages are all for it. A repeat gets the first answer.
    """
    request = build(
        pb.EndTransactionsRequest,
        transaction_ids=list(transaction_ids),
        resolution=pb.RESOLUTION_COMMIT if commit else pb.RESOLUTION_ROLLBACK,
        topic=topic,
    )
    return Call(
        wire.END_TRANSACTIONS,
        request,
        lambda answer: list(map(_ended, answer.transactions)),
        repeat=Repeat.KNOWN,
        timeout_s=timeout_s,
    )


def end_one(
    transaction_id: str, *, commit: bool, timeout_s: float | None
) -> Call[EndedTransaction]:
    """Commit or roll back one transaction; TransactionRefused if it did not end so."""

    def as_asked(transactions: list[EndedTransaction]) -> EndedTransaction:
        [ended] = transactions
        if ended.state != ("committed" if commit else "rolled back"):
            problem = f": {ended.problem}" if ended.problem else ""
            raise TransactionRefused(
                f"transaction {transaction_id!r} is {ended.state}{problem}", state=ended.state
            )
        return ended

    return end_transactions([transaction_id], commit=commit, timeout_s=timeout_s).then(as_asked)


class TransactionOperations:
    """Transactions that are open."""

    end_transactions = operation_of(end_transactions)

    @operation
    def pending_transactions(self, *, timeout_s: float | None = None) -> Call[PendingTransactions]:
        """Return the transactions that nobody has ended, the oldest first: 10,000 at most, and their number."""
        return Call(
            wire.LIST_TRANSACTIONS,
            pb.ListTransactionsRequest(),
            lambda answer: PendingTransactions(
                (value_of(PendingTransaction, each) for each in answer.transactions),
                answer.pending_count,
            ),
            timeout_s=timeout_s,
        )


def watch(topics: Sequence[str]) -> Call[TransactionCheck]:
    """Ask for the checks about topics, a stream."""
    request = build(pb.WatchChecksRequest, topics=list(topics))
    return Call(wire.WATCH_CHECKS, request, _check)


def _ended(each: pb.EndedTransaction) -> EndedTransaction:
    return value_of(EndedTransaction, each, state=_STATES.get(each.state, "unknown"))


def _check(answer: pb.TransactionCheck) -> TransactionCheck:
    records = tuple(Records(memoryview(answer.records), answer.message_count))
    return value_of(TransactionCheck, answer, records=records)
