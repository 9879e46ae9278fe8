"""Calls of servicers in their own process are answered and refused as over a channel."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
import structlog
from grpc_health.v1 import health_pb2

from penstock.v1 import leases_pb2
from services.gateway.messages.statuses import refusal_of
from services.gateway.v2 import definition_pb2 as v2
from services.reader.lease_servicer import LeaseServicer
from services.rpc.in_process import InProcessService
from services.rpc.server import Contract
from services.rpc.servicer import raw
from services.rpc.status import InvalidArgument
from storage.leases.values import ReceivedBatch

CHECK = "/grpc.health.v1.Health/Check"
REQUEST = health_pb2.HealthCheckRequest(service="s")
SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


class Scripted:
    """Does what a test says in ``check``."""

    def __init__(self, check: Any) -> None:
        self.check = check

    async def list(self, _request: Any, _context: Any) -> None: ...
    async def watch(self, _request: Any, _context: Any) -> None: ...


def service(check: Any) -> InProcessService:
    return InProcessService(
        [Contract(health_pb2.DESCRIPTOR.services_by_name["Health"], Scripted(check))]
    )


async def refusal(check: Any, **options: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await service(check).call(CHECK, REQUEST, **options)
    return refused.value


async def test_a_message_is_answered_as_bytes() -> None:
    async def check(request: Any, context: Any) -> Any:
        assert (request.service, context.time_remaining()) == ("s", None)
        return SERVING

    assert await service(check).call(CHECK, REQUEST) == SERVING.SerializeToString()


@pytest.mark.parametrize("request_", [REQUEST, REQUEST.SerializeToString()])
async def test_a_method_that_takes_bytes_gets_bytes(request_: Any) -> None:
    @raw
    async def check(request: Any, _context: Any) -> bytes:
        return b"<%s>" % request

    assert await service(check).call(CHECK, request_) == b"<%s>" % REQUEST.SerializeToString()


async def test_a_refusal_has_the_details_that_a_channel_carries() -> None:
    async def check(_request: Any, _context: Any) -> None:
        raise InvalidArgument("sql_expression", "ends at 7")

    error = await refusal(check)

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal_of(error).code == v2.ILLEGAL_FILTER_EXPRESSION
    assert "ends at 7" in (error.details() or "")


async def test_a_fault_shows_nothing_of_itself() -> None:
    async def check(_request: Any, _context: Any) -> None:
        raise RuntimeError("secret")

    error = await refusal(check)

    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error")


async def test_a_device_that_fails_is_logged_as_of_a_port() -> None:
    """Nobody else logs it: what a client of RocketMQ is answered is no refusal of a call."""

    async def check(_request: Any, _context: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", "f")

    with structlog.testing.capture_logs() as events:
        error = await refusal(check)

    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    [event] = events
    assert (event["log_level"], event["event"], event["method"]) == ("error", "call failed", CHECK)
    assert "Input/output error" in event["problem"]


async def test_an_answer_that_does_not_come_in_time_is_given_up() -> None:
    ended = asyncio.Event()

    async def check(_request: Any, context: Any) -> None:
        assert 0 < context.time_remaining() <= 0.01
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    error = await refusal(check, timeout_s=0.01)
    await asyncio.wait_for(ended.wait(), 30)

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_method_whose_caller_goes_as_it_is_answered_takes_the_answer_back() -> None:
    """It runs in its caller's task: what it waits for is there, and it is cancelled all the same."""
    asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    taken_back: list[Any] = []

    async def check(_request: Any, _context: Any) -> Any:
        try:
            return await asked
        except asyncio.CancelledError:
            taken_back.append(asked.result())
            raise

    call = asyncio.create_task(service(check).call(CHECK, REQUEST))
    await asyncio.sleep(0)
    asked.set_result(SERVING)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert taken_back == [SERVING]


async def test_an_answer_that_needs_no_wait_comes_without_a_turn_of_the_loop() -> None:
    turns: list[int] = []

    async def check(_request: Any, _context: Any) -> Any:
        return SERVING

    asyncio.get_running_loop().call_soon(turns.append, 1)
    await service(check).call(CHECK, REQUEST, timeout_s=10)

    assert turns == []


async def test_a_receive_of_this_process_does_not_wait_to_hear_of_its_caller() -> None:
    """Its caller has what it leased, and gives it back; over a connection some turns tell whether it is there."""
    batch = ReceivedBatch(
        record_count=1, attempts=np.ones(1, np.int32), receipt_handles=b"h", lease_end_ms=1
    )

    async def at_once(*_: Any) -> ReceivedBatch:
        return batch

    leases: Any = SimpleNamespace(begins_at_latest=lambda *_: False)
    receives: Any = SimpleNamespace(moment=1, has_nothing=lambda *_: False, at_once=at_once)
    nothing: Any = SimpleNamespace(pending=lambda: 0)
    servicer = LeaseServicer(
        leases, nothing, receives, nothing, nothing, asyncio.Event(), bytes_max=1, wait_ms_max=1
    )
    here = InProcessService([Contract(leases_pb2.DESCRIPTOR.services_by_name["Leases"], servicer)])
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    asked = leases_pb2.ReceiveRequest(group="g", topic="t", client_id="c", auto_renew=True)
    answer = await here.call("/penstock.v1.Leases/Receive", asked, timeout_s=10)

    assert leases_pb2.ReceiveResponse.FromString(answer).record_count == 1
    assert turns == []


async def test_a_timeout_of_the_methods_own_is_no_lack_of_time() -> None:
    async def check(_request: Any, _context: Any) -> None:
        raise TimeoutError(110, "the disk does not answer")

    error = await refusal(check, timeout_s=10)

    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_answers_that_wait_when_their_method_ends_are_handed_over() -> None:
    async def check(_request: Any, context: Any) -> None:
        for number in range(5):
            await context.write(b"%d" % number)

    answers = [answer async for answer in service(check).answers(CHECK, REQUEST)]

    assert answers == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_caller_that_goes_leaves_no_task_waiting_for_answers() -> None:
    called = asyncio.Event()

    async def check(_request: Any, _context: Any) -> None:
        called.set()
        await asyncio.Event().wait()

    async def take() -> None:
        async for _ in service(check).answers(CHECK, REQUEST):
            pass

    before = asyncio.all_tasks()
    taking = asyncio.create_task(take())
    await called.wait()
    left = asyncio.all_tasks() - before
    taking.cancel()
    _, waiting = await asyncio.wait(left, timeout=30)

    assert len(left) >= 2
    assert not waiting


async def test_a_caller_that_goes_ends_the_call() -> None:
    called, ended = asyncio.Event(), asyncio.Event()

    async def check(_request: Any, _context: Any) -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    call = asyncio.create_task(service(check).call(CHECK, REQUEST))
    await called.wait()
    call.cancel()
    await asyncio.wait_for(ended.wait(), 30)

    assert await asyncio.gather(call, return_exceptions=True) != [None]
