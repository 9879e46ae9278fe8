"""Messages of a stream given to a function as they come, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextvars import ContextVar
from typing import Any

import grpc
import pytest

from services.limits.meter import Meter
from services.limits.metered_call import MeteredCall
from services.rpc.served_call import CallAborted, CallEnded, ServedCall
from storage.accounts.limits import Limits

WHO: ContextVar[str] = ContextVar("who", default="nobody")
SENT = [b"%d" % number for number in range(200)]


def to(channel: Any, messages: Any = SENT) -> Any:
    return channel.stream_stream("/a.B/C", None, None)(iter(messages))


@pytest.mark.parametrize("is_metered", [False, True])
async def test_all_come_in_order_in_the_handler_s_context(serving: Any, is_metered: bool) -> None:
    taken: list[bytes] = []
    said: set[str] = set()

    async def rest() -> None:
        said.add(WHO.get())
        count = len(taken)
        await asyncio.sleep(0.01)
        assert len(taken) == count  # none comes meanwhile

    def take(message: bytes) -> Awaitable[None] | None:
        taken.append(message)
        said.add(WHO.get())
        return rest() if len(taken) % 50 == 0 else None

    async def run(call: ServedCall) -> bytes:
        WHO.set("ann")
        reader = MeteredCall(call, Meter("ann", Limits())) if is_metered else call
        await reader.read_each(take)
        return b"end"

    async with serving(run, takes_stream=True) as (_, channel):
        assert [answer async for answer in to(channel)] == [b"end"]
    assert (taken, said) == (SENT, {"ann"})


@pytest.mark.parametrize("is_waited_for", [False, True])
async def test_what_the_function_raises_ends_the_reading(serving: Any, is_waited_for: bool) -> None:
    async def fail() -> None:
        raise ValueError("a fault")

    def take(message: bytes) -> Awaitable[None] | None:
        if message != b"3":
            return None
        if is_waited_for:
            return fail()
        raise ValueError("a fault")

    async def run(call: ServedCall) -> None:
        try:
            await call.read_each(take)
        except ValueError as error:
            raise CallAborted(grpc.StatusCode.DATA_LOSS, str(error)) from None

    async with serving(run, takes_stream=True) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            _ = [answer async for answer in to(channel, SENT[:4])]
    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.DATA_LOSS, "a fault")


async def test_a_stream_that_breaks_off_is_no_end(serving: Any) -> None:
    ended: asyncio.Future[type[BaseException] | None] = asyncio.get_running_loop().create_future()

    async def run(call: ServedCall) -> None:
        try:
            await call.read_each(lambda _: None)
            ended.set_result(None)
        except BaseException as error:
            ended.set_result(type(error))
            raise

    async def messages() -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.sleep(60)

    async with serving(run, takes_stream=True) as (_, channel):
        call = channel.stream_stream("/a.B/C", None, None)(messages())
        await asyncio.sleep(0.2)
        call.cancel()
        async with asyncio.timeout(10):
            assert await ended in (CallEnded, asyncio.CancelledError)


async def test_a_reader_that_is_cancelled_takes_nothing_more(serving: Any) -> None:
    taken: list[bytes] = []

    async def run(call: ServedCall) -> bytes:
        reading = asyncio.ensure_future(call.read_each(taken.append))  # type: ignore[arg-type]
        while not taken:
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait({reading})
        taken.append(b"cancelled")
        await call.write(b"go on")
        await asyncio.sleep(0.2)
        return b"end"

    async def messages() -> AsyncIterator[bytes]:
        yield b"first"
        await gone_on.wait()
        yield b"second"

    gone_on = asyncio.Event()
    async with serving(run, takes_stream=True) as (_, channel):
        call = channel.stream_stream("/a.B/C", None, None)(messages())
        assert await call.read() == b"go on"
        gone_on.set()
        assert await call.read() == b"end"
    assert taken == [b"first", b"cancelled"]
