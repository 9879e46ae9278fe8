"""What becomes of a batch that the writer refuses, cannot take now, or that a fault breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.v1 import writer_pb2
from services.gateway.messages.statuses import CallRefused
from services.gateway.sends.batch_stream import NotNow, Unanswered
from services.gateway.sends.sender import Sender, WaitingRoom
from services.gateway.v2 import definition_pb2 as v2
from storage.message import ProducerSequence


class FakeStream:
    """Stores batches in order; raises what ``errors`` has for a record, the first time or always."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.asked: list[tuple[list[bytes], ProducerSequence]] = []
        self.errors: dict[bytes, list[Exception]] = {}

    async def store(
        self, records: Sequence[bytes], producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        self.asked.append((list(records), producer))
        await asyncio.sleep(0.001)
        for record in records:
            if self.errors.get(record):
                raise self.errors[record].pop()
        first = len(self.stored)
        self.stored += records
        one = writer_pb2.QueueRange(
            topic="t", queue_id=0, first_queue_offset=first, count=len(records)
        )
        return writer_pb2.ProduceBatchResponse(ranges=[one])


@pytest.fixture(name="stream")
def _stream() -> FakeStream:
    return FakeStream()


async def send(sender: Sender, *records: bytes, seconds: float = 5.0) -> Any:
    """Return the offsets, or the code of the refusal."""
    until = asyncio.get_running_loop().time() + seconds
    try:
        return await sender.store([("t", 0)] * len(records), records, until)
    except CallRefused as refused:
        return refused.code


def sender_of(stream: FakeStream, waiting_bytes_max: int = 1 << 20) -> Sender:
    return Sender(stream, WaitingRoom(waiting_bytes_max))


async def test_sends_of_one_moment_are_one_batch_in_their_order(stream: FakeStream) -> None:
    sender = sender_of(stream)
    offsets = await asyncio.gather(*(send(sender, b"%d" % n) for n in range(10)))

    assert stream.stored == [b"%d" % n for n in range(10)]
    assert offsets == [[n] for n in range(10)]


async def test_one_that_is_refused_takes_no_other_with_it(stream: FakeStream) -> None:
    refusal = CallRefused(v2.TOPIC_NOT_FOUND, "gone")
    stream.errors[b"bad"] = [refusal, refusal]
    sender = sender_of(stream)
    answers = await asyncio.gather(*(send(sender, record) for record in (b"a", b"bad", b"b")))

    assert answers == [[0], v2.TOPIC_NOT_FOUND, [1]]


async def test_what_cannot_be_stored_now_is_sent_again_in_order(stream: FakeStream) -> None:
    stream.errors[b"a"] = [NotNow(), NotNow()]
    sender = sender_of(stream)
    answers = await asyncio.gather(send(sender, b"a"), send(sender, b"b"))

    assert (answers, stream.stored) == ([[0], [1]], [b"a", b"b"])


async def test_a_caller_that_cannot_wait_longer_is_answered_and_dropped(stream: FakeStream) -> None:
    stream.errors[b"a"] = [NotNow() for _ in range(100)]
    sender = sender_of(stream)

    assert await send(sender, b"a", seconds=0.01) == v2.PROXY_TIMEOUT
    assert await send(sender, b"b") == [0]


async def test_a_batch_whose_answer_is_lost_is_sent_again_as_it_was(stream: FakeStream) -> None:
    """Also those records that nobody waits for any more: the writer knows the batch by all of them."""
    stream.errors[b"a"] = [Unanswered() for _ in range(3)]
    sender = sender_of(stream)
    answers = await asyncio.gather(send(sender, b"a"), send(sender, b"b", seconds=0.02))
    after = await send(sender, b"c")

    assert (answers, after) == ([[0], v2.PROXY_TIMEOUT], [2])
    *attempts, last = stream.asked
    assert [records for records, _ in attempts] == [[b"a", b"b"]] * 4
    ids = {(producer.producer_id, producer.sequence) for _, producer in attempts}
    assert len(ids) == 1
    assert (last[1].producer_id, last[1].sequence - 1) in ids
    ages_ms = [producer.age_ms for _, producer in attempts]
    assert ages_ms[0] == 0
    assert ages_ms[3] > ages_ms[2] > ages_ms[1] > 0


async def test_a_fault_of_ours_ends_its_batch_and_no_other(stream: FakeStream) -> None:
    stream.errors[b"a"] = [RuntimeError("a fault")]
    sender = sender_of(stream)

    assert await send(sender, b"a") == v2.INTERNAL_SERVER_ERROR
    assert await send(sender, b"b") == [0]


async def test_more_than_may_wait_is_told_to_slow_down(stream: FakeStream) -> None:
    sender = sender_of(stream, waiting_bytes_max=20)
    answers = await asyncio.gather(*(send(sender, b"x" * 8) for _ in range(5)))

    assert answers.count(v2.TOO_MANY_REQUESTS) == 3
    assert await send(sender, b"y") == [2]


async def test_a_request_larger_than_the_writer_takes_is_refused(stream: FakeStream) -> None:
    sender = sender_of(stream, waiting_bytes_max=1 << 30)

    assert await send(sender, b"x" * ((12 << 20) + 1)) == v2.PAYLOAD_TOO_LARGE
    assert stream.stored == []
