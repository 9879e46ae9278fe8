"""Ends of transactions that come together go to the writer together, and each caller is answered for its own."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import pytest

from penstock.v1 import transactions_pb2 as pb
from services.gateway.messages.statuses import CallRefused
from services.gateway.transactions import TransactionEnds
from services.gateway.v2 import definition_pb2 as v2

COMMIT, ROLLBACK = pb.RESOLUTION_COMMIT, pb.RESOLUTION_ROLLBACK


def refusal(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=code.name)


class Writer:
    """Answers each call after a moment; ids that begin with ``un`` are unknown. ``problems`` come first."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, list[str]]] = []
        self.problems: list[Exception] = []
        self.answer: bytes | None = None
        self.waits_s = 0.001

    async def call(self, path: str, request: Any, *, timeout_s: float) -> bytes:
        assert path == "/penstock.v1.Transactions/EndTransactions" and timeout_s > 0
        self.asked.append((request.topic, request.resolution, list(request.transaction_ids)))
        await asyncio.sleep(self.waits_s)
        if self.problems:
            raise self.problems.pop(0)
        if self.answer is not None:
            return self.answer
        states = [
            pb.TRANSACTION_NOT_FOUND if each.startswith("un") else pb.TRANSACTION_COMMITTED
            for each in request.transaction_ids
        ]
        return pb.EndTransactionsResponse(
            transactions=[
                pb.EndedTransaction(transaction_id=each, state=state)
                for each, state in zip(request.transaction_ids, states, strict=True)
            ]
        ).SerializeToString()


async def outcome(
    ends: TransactionEnds,
    transaction_id: str,
    *,
    topic: str = "t",
    how: int = COMMIT,
    seconds: float = 5.0,
) -> Any:
    """Return the id and state that the end was answered with, or the code of the refusal."""
    try:
        ended = await ends.end((topic, cast("Any", how)), transaction_id, seconds)
    except CallRefused as refused:
        return refused.code
    return ended.transaction_id, ended.state


async def test_those_of_one_moment_are_one_call_and_those_that_come_meanwhile_the_next() -> None:
    writer = Writer()
    ends = TransactionEnds(cast("Any", writer))
    first = [asyncio.create_task(outcome(ends, f"a{n}")) for n in range(3)]
    await asyncio.sleep(0.0005)
    later = [asyncio.create_task(outcome(ends, each)) for each in ("b", "unknown", "c")]
    answers = await asyncio.gather(*first, *later)
    assert writer.asked == [("t", COMMIT, ["a0", "a1", "a2"]), ("t", COMMIT, ["b", "unknown", "c"])]
    assert answers == [
        *((f"a{n}", pb.TRANSACTION_COMMITTED) for n in range(3)),
        ("b", pb.TRANSACTION_COMMITTED), ("unknown", pb.TRANSACTION_NOT_FOUND), ("c", pb.TRANSACTION_COMMITTED),
    ]  # fmt: skip
    assert not ends._gathering


async def test_a_call_whose_answer_is_lost_is_made_again() -> None:
    writer = Writer()
    writer.problems = [refusal(grpc.StatusCode.UNAVAILABLE)] * 2
    ends = TransactionEnds(cast("Any", writer))
    assert await asyncio.gather(outcome(ends, "a"), outcome(ends, "b")) == [
        ("a", pb.TRANSACTION_COMMITTED), ("b", pb.TRANSACTION_COMMITTED),
    ]  # fmt: skip
    assert [ids for _, _, ids in writer.asked] == [["a", "b"]] * 3


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (refusal(grpc.StatusCode.RESOURCE_EXHAUSTED), v2.TOO_MANY_REQUESTS),
        (refusal(grpc.StatusCode.INTERNAL), v2.INTERNAL_SERVER_ERROR),
        (RuntimeError("a fault"), v2.INTERNAL_SERVER_ERROR),
    ],
)
async def test_a_refusal_is_told_to_all_of_a_call_and_the_next_one_is_made(
    problem: Exception, code: int
) -> None:
    writer = Writer()
    writer.problems = [problem]
    ends = TransactionEnds(cast("Any", writer))
    assert await asyncio.gather(outcome(ends, "a"), outcome(ends, "b")) == [code, code]
    assert await outcome(ends, "c") == ("c", pb.TRANSACTION_COMMITTED)
