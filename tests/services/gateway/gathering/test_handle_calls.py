"""Calls about handles that are joined: whatever ends one, those who wait hear of it, and later ones are made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.gateway.handle_calls import HandleCall, HandleCalls
from services.gateway.v2 import definition_pb2 as v2

CALL = HandleCall("Acknowledge", "billing", "orders")


class FakeReader:
    """Answers calls with bytes, or raises what is not bytes."""

    def __init__(self, *answers: bytes | BaseException) -> None:
        self.answers = list(answers)

    async def call(self, _path: str, _request: Any, *, timeout_s: float) -> bytes:
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, bytes):
            return answer
        raise answer


@pytest.mark.parametrize(
    "answer", [b"not an answer", RuntimeError("closed"), asyncio.CancelledError()]
)
async def test_what_ends_a_call_in_an_unforeseen_way_ends_that_call_alone(
    answer: bytes | BaseException,
) -> None:
    reader: Any = FakeReader(answer, b"")
    calls = HandleCalls(reader)
    async with asyncio.timeout(60):
        first = await asyncio.gather(*(calls.status_of(CALL, f"{n:040}") for n in range(3)))
        again = await calls.status_of(CALL, "x" * 40)

    assert {status.code for status in first} == {v2.INTERNAL_SERVER_ERROR}
    assert again.code == v2.OK
