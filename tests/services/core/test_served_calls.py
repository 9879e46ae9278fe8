"""Tests of both servers with gRPC's own client: what a handler gets, and how a call ends."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import grpc
import pytest

from services.rpc.served_call import CallAborted, CallServer, ServedCall

METADATA = (("x-name", "value"), ("x-name-bin", b"\0\xff"))


def unary(channel: Any, path: str = "/a.B/C") -> Any:
    return channel.unary_unary(path, None, None)


async def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def test_an_answer_has_the_request_and_what_is_known_of_the_caller(serving: Any) -> None:
    async def run(request: bytes, call: ServedCall) -> bytes:
        assert set(METADATA) <= set(call.invocation_metadata())
        assert call.peer().startswith("ipv4:127.0.0.1:")
        assert call.time_remaining() is None
        assert not call.cancelled()
        assert call.peer_identity() is None
        return request[::-1]

    async with serving(run) as (_, channel):
        assert await unary(channel)(b"abc", metadata=METADATA) == b"cba"


@pytest.mark.parametrize("size", [0, 1, 100_000, 3 << 20])
async def test_messages_of_any_size_pass(serving: Any, size: int) -> None:
    async def run(request: bytes, _call: ServedCall) -> bytes:
        return request

    async with serving(run) as (_, channel):
        assert len(await unary(channel)(bytes(size))) == size


async def test_a_deadline_is_known_and_ends_the_handler(serving: Any) -> None:
    remaining: list[float | None] = []
    ended = asyncio.Event()

    async def run(_request: bytes, call: ServedCall) -> bytes:
        remaining.append(call.time_remaining())
        try:
            await asyncio.sleep(60)
        finally:
            assert call.cancelled()
            ended.set()
        return b""

    async with serving(run) as (_, channel):
        code = await code_of(unary(channel)(b"", timeout=0.3))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        async with asyncio.timeout(10):
            await ended.wait()
    assert remaining[0] is not None
    assert 0 < remaining[0] <= 0.31  # the core rounds it up to its ticks


@pytest.mark.parametrize("is_brief", [False, True])
async def test_a_caller_who_goes_cancels_the_handler(serving: Any, is_brief: bool) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def run(_request: bytes, _call: ServedCall) -> bytes:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return b""

    async with serving(run, is_brief=is_brief) as (_, channel):
        call = unary(channel)(b"")
        await entered.wait()
        call.cancel()
        async with asyncio.timeout(10):
            await ended.wait()


async def test_a_method_that_is_not_served_and_too_many_calls_are_refused(serving: Any) -> None:
    go_on = asyncio.Event()

    async def run(_request: bytes, _call: ServedCall) -> bytes:
        await go_on.wait()
        return b"done"

    async with serving(run, calls_max=2) as (_, channel):
        assert await code_of(unary(channel, "/a.B/D")(b"")) is grpc.StatusCode.UNIMPLEMENTED
        waiting = [asyncio.ensure_future(unary(channel)(b"")) for _ in range(2)]
        code = grpc.StatusCode.OK
        async with asyncio.timeout(10):
            while code is not grpc.StatusCode.RESOURCE_EXHAUSTED:  # until both have come
                refused = unary(channel)(b"", timeout=0.2)
                code = await refused.code()
        go_on.set()
        assert await asyncio.gather(*waiting) == [b"done", b"done"]
        assert await unary(channel)(b"") == b"done"


async def test_a_call_without_a_request_is_refused(serving: Any) -> None:
    async def run(_request: bytes, _call: ServedCall) -> bytes:
        raise AssertionError("is not run")

    async with serving(run) as (_, channel):
        call = channel.stream_unary("/a.B/C", None, None)(timeout=10)
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_status_has_its_message_and_metadata(serving: Any) -> None:
    async def run(_request: bytes, call: ServedCall) -> bytes:
        raise CallAborted(
            grpc.StatusCode.DATA_LOSS, "lost: \u2026", (("x-why", "a"), ("b-bin", b"\1"))
        )

    async with serving(run) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(channel)(b"")
    error = refused.value
    assert error.code() is grpc.StatusCode.DATA_LOSS
    assert error.details() == "lost: \u2026"
    assert dict(error.trailing_metadata()) == {"x-why": "a", "b-bin": b"\1"}


async def test_a_handler_that_fails_ends_its_call_alone(
    serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(request: bytes, _call: ServedCall) -> bytes:
        if request:
            raise RuntimeError("a fault")
        return b"fine"

    async with serving(run) as (_, channel):
        assert await code_of(unary(channel)(b"x")) is grpc.StatusCode.UNKNOWN
        assert await unary(channel)(b"") == b"fine"
        gc.collect()  # asyncio says then that nobody took the error
    assert "a fault" in caplog.text


async def test_a_stream_of_answers_comes_in_order_and_waits_for_who_reads(serving: Any) -> None:
    written = 0

    async def run(request: bytes, call: ServedCall) -> None:
        nonlocal written
        for number in range(int(request)):
            await call.write(b"%d" % number + bytes(1 << 20))
            written += 1

    async with serving(run) as (_, channel):
        call = channel.unary_stream("/a.B/C", None, None)(b"50")
        assert (await call.read()).startswith(b"0\0")
        await asyncio.sleep(0.5)
        assert written < 30  # the connection takes no more while nobody reads
        numbers = [int((await call.read()).partition(b"\0")[0]) for _ in range(49)]
        assert await call.read() is grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs miss it
    assert numbers == list(range(1, 50))


async def test_metadata_may_be_sent_ahead(serving: Any) -> None:
    go_on = asyncio.Event()

    async def run(_request: bytes, call: ServedCall) -> None:
        await call.send_initial_metadata((("x-ready", "yes"),))
        await go_on.wait()
        await call.write(b"one")

    async with serving(run) as (_, channel):
        call = channel.unary_stream("/a.B/C", None, None)(b"")
        assert dict(await call.initial_metadata()) == {"x-ready": "yes"}
        go_on.set()
        assert [answer async for answer in call] == [b"one"]


async def test_a_stream_both_ways_goes_in_turn(serving: Any) -> None:
    async def run(call: ServedCall) -> None:
        await call.read_each(lambda data: call.write(data[::-1]))
        await call.write(b"end")

    async with serving(run, takes_stream=True) as (_, channel):
        call = channel.stream_stream("/a.B/C", None, None)()
        for word in (b"abc", b"", b"xyz"):
            await call.write(word)
            assert await call.read() == word[::-1]
        await call.done_writing()
        assert await call.read() == b"end"
        assert await call.code() is grpc.StatusCode.OK


async def test_a_call_that_takes_nothing_can_be_cancelled_by_its_service(serving: Any) -> None:
    writing, ended = asyncio.Event(), asyncio.Event()
    calls: list[ServedCall] = []

    async def run(call: ServedCall) -> None:
        calls.append(call)
        try:
            while True:
                writing.set()
                await call.write(bytes(1 << 20))
        finally:
            ended.set()

    async with serving(run, takes_stream=True) as (_, channel):
        call = channel.stream_stream("/a.B/C", None, None)()
        await writing.wait()
        await asyncio.sleep(0.3)
        calls[0].cancel()
        async with asyncio.timeout(10):
            await ended.wait()
        call.cancel()


async def test_a_stop_lets_calls_end_and_takes_no_new_ones(serving: Any) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def run(_request: bytes, _call: ServedCall) -> bytes:
        entered.set()
        await go_on.wait()
        return b"done"

    async with serving(run) as (server, channel):
        answering = asyncio.ensure_future(unary(channel)(b""))
        await entered.wait()
        stopping = asyncio.ensure_future(server.stop(30))
        await asyncio.sleep(0.1)
        assert await code_of(unary(channel)(b"", timeout=5)) is grpc.StatusCode.UNAVAILABLE
        go_on.set()
        assert await answering == b"done"
        async with asyncio.timeout(10):
            await stopping


async def test_a_free_address_is_needed(server_type: type[CallServer]) -> None:
    taken, other = (server_type({}, (("grpc.so_reuseport", 0),), calls_max=1) for _ in range(2))
    port = taken.add_port("127.0.0.1:0")
    with pytest.raises(RuntimeError):
        other.add_port(f"127.0.0.1:{port}")
    for each in (taken, other):
        await each.start()
        await each.stop(0)
