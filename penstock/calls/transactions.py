"""Calls about transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock import wire
from penstock.calls.call import Call
from penstock.errors import TransactionRefused
from penstock.record import Records
from penstock.requests import build, check_size, value_of
from penstock.retry import Repeat
from penstock.transaction_values import (
    EndedTransaction,
    PendingTransaction,
    PendingTransactions,
    TransactionCheck,
)
from penstock.v1 import transactions_pb2 as pb

_STATES: Final = {
    number: name.removeprefix("TRANSACTION_").lower().replace("_", " ")
    for name, number in pb.TransactionState.items()
}


def prepare(
    records: bytes, *, transaction_id: str, key_prefix: str, immunity_s: int, bytes_max: int
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
        wire.PREPARE, request, lambda answer: tuple(answer.transaction_ids), repeat=Repeat.KNOWN
    )


def end(
    transaction_ids: Sequence[str], *, commit: bool, topic: str = ""
) -> Call[list[EndedTransaction]]:
    """Commit or roll back transactions; a repeat gets the first answer."""
    request = build(
        pb.EndTransactionsRequest,
        transaction_ids=list(transaction_ids),
        resolution=pb.RESOLUTION_COMMIT if commit else pb.RESOLUTION_ROLLBACK,
        topic=topic,
    )
    return Call(
        wire.END_TRANSACTIONS,
        request,
        lambda answer: [_ended(each) for each in answer.transactions],
        repeat=Repeat.KNOWN,
    )


def end_one(transaction_id: str, *, commit: bool) -> Call[EndedTransaction]:
    """Commit or roll back one transaction; TransactionRefused if it did not end so."""

    def interpret(answer: pb.EndTransactionsResponse) -> EndedTransaction:
        ended = _ended(answer.transactions[0])
        if ended.state != ("committed" if commit else "rolled back"):
            problem = f": {ended.problem}" if ended.problem else ""
            raise TransactionRefused(
                f"transaction {transaction_id!r} is {ended.state}{problem}", state=ended.state
            )
        return ended

    call = end([transaction_id], commit=commit)
    return Call(call.method, call.request, interpret, repeat=call.repeat)


def list_pending() -> Call[PendingTransactions]:
    """Ask which transactions nobody has ended, and how many there are."""
    return Call(
        wire.LIST_TRANSACTIONS,
        pb.ListTransactionsRequest(),
        lambda answer: PendingTransactions(
            (value_of(PendingTransaction, each) for each in answer.transactions),
            max(answer.pending_count, len(answer.transactions)),  # a former writer says none
        ),
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
