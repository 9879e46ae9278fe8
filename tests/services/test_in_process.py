"""Calls of servicers in their own process are answered and refused as over a channel."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from services.rpc.in_process import InProcessService
from services.rpc.server import Contract

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


async def test_a_fault_shows_nothing_of_itself() -> None:
    async def check(_request: Any, _context: Any) -> None:
        raise RuntimeError("secret")

    error = await refusal(check)

    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error")


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


async def test_answers_that_wait_when_their_method_ends_are_handed_over() -> None:
    async def check(_request: Any, context: Any) -> None:
        for number in range(5):
            await context.write(b"%d" % number)

    answers = [answer async for answer in service(check).answers(CHECK, REQUEST)]

    assert answers == [b"0", b"1", b"2", b"3", b"4"]
