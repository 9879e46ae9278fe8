"""Acknowledgements over a stream: each has its own answer, and what ends the stream ends what waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from penstock.v1 import leases_pb2
from services.gateway import acknowledgements
from services.gateway.acknowledgements import ACKNOWLEDGE, StreamedAcknowledging

DONE = leases_pb2.AcknowledgeResponse(refused=[leases_pb2.RefusedHandle(index=3)])


def request(topic: str) -> leases_pb2.AcknowledgeRequest:
    return leases_pb2.AcknowledgeRequest(group="billing", topic=topic)


class FakeStream:
    """Takes requests; gives the answers that the test puts in."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.is_cancelled = False

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        self.written.append(leases_pb2.AcknowledgeRequest.FromString(data).topic)

    async def read(self) -> Any:
        return await self.answers.get()

    def cancel(self) -> None:
        self.is_cancelled = True

    def answer(self, **outcome: Any) -> None:
        self.answers.put_nowait(leases_pb2.AcknowledgeStreamResponse(**outcome).SerializeToString())


class FakeReader:
    """Opens fake streams, and counts calls."""

    def __init__(self) -> None:
        self.streams: list[FakeStream] = []
        self.called: list[str] = []
        self.renewals = 0

    def stream(self, _path: str) -> Any:
        def opened(**_: Any) -> FakeStream:
            self.streams.append(FakeStream())
            return self.streams[-1]

        return opened

    def renew(self) -> None:
        self.renewals += 1

    async def call(self, path: str, _request: Any, **_: Any) -> bytes:
        self.called.append(path)
        return b"by itself"


@pytest.fixture(name="reader")
def _reader() -> FakeReader:
    return FakeReader()


def asked(calls: StreamedAcknowledging, *topics: str, **given: float) -> list[asyncio.Task[bytes]]:
    return [
        asyncio.create_task(calls.call(ACKNOWLEDGE, request(topic), **given)) for topic in topics
    ]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def assert_another_stream_answers(calls: StreamedAcknowledging, reader: FakeReader) -> None:
    (again,) = asked(calls, "c")
    await settle()
    assert reader.streams[1].written == ["c"]
    reader.streams[1].answer(done=DONE)

    assert leases_pb2.AcknowledgeResponse.FromString(await again) == DONE


async def test_answers_go_to_who_asked_in_the_order_of_the_requests(reader: FakeReader) -> None:
    fakes: Any = reader
    calls = StreamedAcknowledging(fakes, fakes)
    first, second = asked(calls, "a", "b")
    await settle()
    (stream,) = reader.streams
    assert stream.written == ["a", "b"]
    stream.answer(done=DONE)
    await settle()
    assert first.done() and not second.done()
    stream.answer(done=leases_pb2.AcknowledgeResponse())

    assert leases_pb2.AcknowledgeResponse.FromString(await first) == DONE
    assert await second == b""
    assert not reader.called


async def test_a_refused_one_is_asked_by_itself_for_its_status(reader: FakeReader) -> None:
    fakes: Any = reader
    calls = StreamedAcknowledging(fakes, fakes)
    (refused,) = asked(calls, "a")
    await settle()
    reader.streams[0].answer(failure={"code": 3})

    assert await refused == b"by itself"
    assert reader.called == [ACKNOWLEDGE]


@pytest.mark.parametrize("end", [grpc.aio.EOF, "broken"])  # type: ignore[attr-defined]
async def test_the_end_of_the_stream_ends_what_waits_and_the_next_opens_another(
    reader: FakeReader, end: Any
) -> None:
    fakes: Any = reader
    calls = StreamedAcknowledging(fakes, fakes)
    waiting = asked(calls, "a", "b")
    await settle()
    reader.streams[0].answers.put_nowait(end)
    for each in waiting:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await each
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    assert reader.streams[0].is_cancelled

    await assert_another_stream_answers(calls, reader)


async def test_a_stream_that_answers_nobody_in_time_is_opened_again_over_a_new_connection(
    reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits on it besides is told at once, and can ask again."""
    monkeypatch.setattr(acknowledgements, "_SILENT_SECONDS", 0.01)
    fakes: Any = reader
    calls = StreamedAcknowledging(fakes, fakes)
    (late, other) = *asked(calls, "a", timeout_s=0.01), *asked(calls, "b")
    codes = []
    for each in (late, other):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await each
        codes.append(failed.value.code())
    assert codes == [grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE]
    assert reader.streams[0].is_cancelled and reader.renewals == 1

    await assert_another_stream_answers(calls, reader)
