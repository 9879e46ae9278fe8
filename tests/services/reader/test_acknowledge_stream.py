"""A stream of acknowledgements: in order, each refused by itself, ended by who asks or by the stop of the reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
import pytest
from leasing import Consumer, create_topic, put
from three_services import three_services

from penstock.v1 import leases_pb2
from services.reader.acknowledge_stream import IN_FLIGHT_MAX, AcknowledgeStream
from services.rpc.servicer import EOF, Draining


def test_each_is_answered_in_turn_and_a_refusal_does_not_end_it(tmp_path: Any) -> None:
    with three_services(tmp_path / "store") as services:
        create_topic(services, "orders")
        put(services, "orders", b"0", b"1")
        consumer = Consumer(services, "billing", "orders")
        first, second = consumer.receive()
        named = {"group": "billing", "topic": "orders"}
        answers = list(
            services.leases.AcknowledgeStream(
                iter(
                    [
                        leases_pb2.AcknowledgeRequest(receipt_handles=first.handle, **named),
                        leases_pb2.AcknowledgeRequest(receipt_handles=b"cut", **named),
                        leases_pb2.AcknowledgeRequest(receipt_handles=first.handle, **named),
                        leases_pb2.AcknowledgeRequest(receipt_handles=second.handle, **named),
                    ]
                ),
                timeout=30,
            )
        )
        (queue,) = consumer.describe()

    assert [each.WhichOneof("outcome") for each in answers] == ["done", "failure", "done", "done"]
    assert answers[1].failure.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert [each.problem for each in answers[2].done.refused] == [leases_pb2.ACKNOWLEDGED]
    assert not answers[0].done.refused and not answers[3].done.refused
    assert queue.group_offset == 2


class FakeContext:
    """A caller whose requests the test puts in."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Any] = asyncio.Queue()
        self.written: list[bytes] = []

    async def read_each(self, take: Any) -> None:
        while (request := await self.requests.get()) is not EOF:
            if (wanted := take(request)) is not None:
                await wanted

    async def write_all(self, answers: Iterable[bytes]) -> None:
        for answer in answers:
            self.written.append(answer)
            await asyncio.sleep(0)


async def test_a_stop_ends_it_when_what_is_being_made_is_answered() -> None:
    context: Any = FakeContext()
    draining, may_end = asyncio.Event(), asyncio.Event()

    async def acknowledge(*_: Any) -> leases_pb2.AcknowledgeResponse:
        await may_end.wait()
        return leases_pb2.AcknowledgeResponse()

    serving = asyncio.create_task(AcknowledgeStream(acknowledge, context, draining).serve())
    context.requests.put_nowait(b"")
    await asyncio.sleep(0.01)
    draining.set()
    await asyncio.sleep(0.01)
    assert not serving.done()
    may_end.set()
    with pytest.raises(Draining):
        await serving
    assert len(context.written) == 1


async def test_many_are_under_way_and_answered_in_their_order() -> None:
    context: Any = FakeContext()
    may_end: list[asyncio.Event] = []

    async def acknowledge(request: Any, _: Any) -> leases_pb2.AcknowledgeResponse:
        may_end.append(asyncio.Event())
        await may_end[-1].wait()
        index = int(request.receipt_handles)
        return leases_pb2.AcknowledgeResponse(refused=[leases_pb2.RefusedHandle(index=index)])

    stream = AcknowledgeStream(acknowledge, context, asyncio.Event())
    serving = asyncio.create_task(stream.serve())
    count = 3 * IN_FLIGHT_MAX
    for number in range(count):
        request = leases_pb2.AcknowledgeRequest(receipt_handles=b"%d" % number)
        context.requests.put_nowait(request.SerializeToString())
    context.requests.put_nowait(EOF)
    await asyncio.sleep(0.05)
    assert len(may_end) == IN_FLIGHT_MAX
    may_end[1].set()
    await asyncio.sleep(0.01)
    assert not context.written
    while not serving.done():
        for event in may_end:
            event.set()
        await asyncio.sleep(0)
    await serving
    parse = leases_pb2.AcknowledgeStreamResponse.FromString
    indices = [parse(answer).done.refused[0].index for answer in context.written]
    assert indices == list(range(count))


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_one_at_which_nothing_is_asked_ends_at_once(*, is_stopped: bool) -> None:
    context: Any = FakeContext()
    draining = asyncio.Event()
    acknowledge: Any = None
    serving = asyncio.create_task(AcknowledgeStream(acknowledge, context, draining).serve())
    await asyncio.sleep(0.01)
    if is_stopped:
        draining.set()
        with pytest.raises(Draining):
            await serving
    else:
        context.requests.put_nowait(EOF)
        await serving
