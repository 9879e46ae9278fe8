"""Ends of transactions: a call whose answer is lost is made again, and a refusal is a status."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import pytest

from penstock.v1 import transactions_pb2 as pb
from services.gateway.messages.statuses import CallRefused
from services.gateway.transactions import TransactionEnds
from services.gateway.v2 import definition_pb2 as v2


def refusal(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=code.name)


class Writer:
    """Answers each call; ``problems`` come first."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.problems: list[Exception] = []

    async def call(self, path: str, request: Any, *, timeout_s: float) -> bytes:
        assert path == "/penstock.v1.Transactions/EndTransactions" and timeout_s > 0
        self.asked.append(list(request.transaction_ids))
        if self.problems:
            raise self.problems.pop(0)
        return pb.EndTransactionsResponse(
            transactions=[
                pb.EndedTransaction(transaction_id=each, state=pb.TRANSACTION_COMMITTED)
                for each in request.transaction_ids
            ]
        ).SerializeToString()


async def outcome(ends: TransactionEnds, transaction_id: str) -> Any:
    """Return the id and state that the end was answered with, or the code of the refusal."""
    try:
        ended = await ends.end(("t", pb.RESOLUTION_COMMIT), transaction_id, 5.0)
    except CallRefused as refused:
        return refused.code
    return ended.transaction_id, ended.state


async def test_a_call_whose_answer_is_lost_is_made_again() -> None:
    writer = Writer()
    writer.problems = [refusal(grpc.StatusCode.UNAVAILABLE)] * 2
    ends = TransactionEnds(cast("Any", writer))
    assert await asyncio.gather(outcome(ends, "a"), outcome(ends, "b")) == [
        ("a", pb.TRANSACTION_COMMITTED), ("b", pb.TRANSACTION_COMMITTED),
    ]  # fmt: skip
    assert writer.asked == [["a", "b"]] * 3


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (refusal(grpc.StatusCode.RESOURCE_EXHAUSTED), v2.TOO_MANY_REQUESTS),
        (RuntimeError("a fault"), v2.INTERNAL_SERVER_ERROR),
    ],
)
async def test_whatever_ends_a_call_is_a_status(problem: Exception, code: int) -> None:
    writer = Writer()
    writer.problems = [problem]
    assert await outcome(TransactionEnds(cast("Any", writer)), "a") == code
