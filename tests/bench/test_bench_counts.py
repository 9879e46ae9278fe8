"""Tests of what a bench counts: what was answered as stored, each once, and nothing else."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from frame_outcomes import answer_with

from bench import drivers
from penstock.v1 import common_pb2, writer_pb2

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs miss it
RESOURCE_EXHAUSTED = 8


def stored(record_count=64):
    answer = writer_pb2.ProduceBatchResponse(record_count=record_count)
    return answer_with(stored=answer).SerializeToString()


def failure(code=RESOURCE_EXHAUSTED, retry_delay_ms=5):
    answer = common_pb2.Failure(code=code, message="no", retry_delay_ms=retry_delay_ms)
    return answer_with(failure=answer).SerializeToString()


class FakeChannel:
    """A server that answers by a script, one answer a frame, and stores when its script is over."""

    def __init__(self, script):
        self.script = iter(script)
        self.frames = []
        self.stored = []
        self.answers = asyncio.Queue()

    def stream_stream(self, _method):
        return lambda: self

    async def write(self, frame):
        self.frames.append(frame)
        answer = next(self.script, stored())
        if answer == stored():
            self.stored.append(frame)
        self.answers.put_nowait(answer)

    async def done_writing(self):
        self.answers.put_nowait(EOF)

    async def read(self):
        return await self.answers.get()

    def cancel(self):
        pass


def send(script, frames=(b"a", b"b", b"c"), in_flight=2):
    async def run():
        channel = FakeChannel(script)
        sending = drivers.time_sink(channel, "", frames, in_flight=in_flight)
        return await asyncio.wait_for(sending, 10), channel

    return asyncio.run(run())


@pytest.mark.parametrize("in_flight", [1, 2, 64])
def test_a_refused_frame_is_sent_again_and_counts_when_it_is_stored(in_flight):
    rate, channel = send([failure(), stored(), failure(), failure()], in_flight=in_flight)
    assert rate.refused == 3
    assert len(channel.frames) == 6
    assert sorted(channel.stored) == [b"a", b"b", b"c"]


def test_only_what_was_stored_is_in_the_rate():
    answers = [failure(), stored(7), stored(7), failure(), stored(7)]
    rate, _ = send(answers)
    seconds = 21 / rate.value
    assert rate.refused == 2
    assert 0.009 < seconds < 5  # two delays of 5 ms one after the other


def test_a_frame_refused_for_good_ends_the_measurement():
    with pytest.raises(RuntimeError, match="refused"):
        send([stored(), failure(retry_delay_ms=0)])
