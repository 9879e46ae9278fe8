"""A stream of acknowledgements: in order, each refused by itself, ended by who asks or by the stop of the reader."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from leasing import Consumer, create_topic, put
from three_services import three_services

from penstock.v1 import leases_pb2
from services.reader.lease_servicer import LeaseServicer
from services.rpc.servicer import Draining


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
    """A caller of one request, which it sends and then waits."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    async def read_each(self, take: Any) -> None:
        await take(b"")
        await asyncio.Event().wait()

    async def write(self, answer: bytes) -> None:
        self.written.append(answer)

    def peer(self) -> str:
        return "a caller"


async def test_a_stop_ends_it_when_what_is_being_made_is_answered() -> None:
    context: Any = FakeContext()
    draining, may_end = asyncio.Event(), asyncio.Event()

    class Slow(LeaseServicer):
        def __init__(self) -> None:
            self._draining = draining

        async def acknowledge(self, *_: Any) -> leases_pb2.AcknowledgeResponse:
            await may_end.wait()
            return leases_pb2.AcknowledgeResponse()

    serving = asyncio.create_task(Slow().acknowledge_stream(context))
    await asyncio.sleep(0.01)
    draining.set()
    await asyncio.sleep(0.01)
    assert not serving.done()
    may_end.set()
    with pytest.raises(Draining):
        await serving
    assert len(context.written) == 1
