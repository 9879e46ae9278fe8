"""Answers written many at a time, and calls that are watched only when they take long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from services.rpc.served_call import CallAborted, CallEnded, ServedCall


async def test_answers_come_in_order_and_the_last_one_with_the_end(serving: Any) -> None:
    async def run(_request: bytes, call: ServedCall) -> bytes:
        await call.write_all(b"%d" % number for number in range(100))
        return b"last"

    async with serving(run) as (_, channel):
        got = [answer async for answer in channel.unary_stream("/a.B/C", None, None)(b"")]
    assert got == [*(b"%d" % number for number in range(100)), b"last"]


async def test_an_answer_that_cannot_be_made_ends_the_call_after_those_before(serving: Any) -> None:
    async def run(_request: bytes, call: ServedCall) -> None:
        def answers() -> Iterator[bytes]:
            yield b"first"
            raise ValueError("a fault")

        try:
            await call.write_all(answers())
        except ValueError:
            raise CallAborted(grpc.StatusCode.DATA_LOSS, "damaged") from None

    got = []
    async with serving(run) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for answer in channel.unary_stream("/a.B/C", None, None)(b""):
                got.append(answer)  # noqa: PERF401  what came before the error
    assert (got, refused.value.code()) == ([b"first"], grpc.StatusCode.DATA_LOSS)


async def test_a_caller_who_goes_is_sent_no_more_answers(serving: Any) -> None:
    made: list[int] = []
    ended: asyncio.Future[type[BaseException] | None] = asyncio.get_running_loop().create_future()

    async def run(_request: bytes, call: ServedCall) -> None:
        def answers() -> Iterator[bytes]:
            for number in range(10_000):
                made.append(number)
                yield bytes(1 << 20)

        try:
            await call.write_all(answers())
        except BaseException as error:
            ended.set_result(type(error))
            raise

    async with serving(run) as (_, channel):
        asked = channel.unary_stream("/a.B/C", None, None)(b"")
        assert len(await asked.read()) == 1 << 20
        asked.cancel()
        async with asyncio.timeout(10):
            assert await ended in (CallEnded, asyncio.CancelledError)
        count = len(made)
        await asyncio.sleep(0.05)
        assert len(made) == count < 10_000
