"""Producing with sequences beside the same without: ``python -m bench.producers.sequences``.

Both sides send to one writer whose files are warmed and for whom no device is waited for, so that what
is compared is what numbering a request costs. Requests are numbered before their round is timed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import Final

import grpc

from bench import drivers, produce
from bench.figures import Figure, show
from bench.produce import BURSTS, IN_FLIGHT, LOG_FILE_BYTES, STREAM, UNARY, batches, message
from bench.resident import wait_until_warmed
from penstock.sequences import RequestToken
from penstock.v1 import writer_pb2, writer_pb2_grpc
from services import loops

FRAMES: Final = 300  # of a round
CALLS: Final = 3_000
WANTED: Final = 0.97  # of the same without sequences


def numbered(numbers: Iterator[int], producer_id: int) -> Iterator[bytes]:
    """Return the fields by which requests of a producer are numbered, without end."""
    return (RequestToken(producer_id, number, 0).field(0) for number in numbers)


async def measure(writer: str, log: Path, *, rounds: int) -> list[Figure]:
    """Time batches on a stream and messages one a call, each with sequences and without."""
    numbers = numbered(count(1), secrets.randbelow(1 << 62) + 1)
    async with grpc.aio.insecure_channel(writer, drivers.CLIENT_OPTIONS) as channel:
        stub = drivers.stub(writer_pb2_grpc.WriterStub, channel)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name=produce.TOPIC, queue_count=8))
        frames, calls = batches(), [message()]
        await drivers.time_sink(channel, STREAM, frames[:1], in_flight=1)
        await asyncio.to_thread(wait_until_warmed, log, LOG_FILE_BYTES)

        async def stream(*, with_numbers: bool) -> drivers.Rate:
            fields = numbers if with_numbers else cycle([b""])
            sent = [
                field + frame
                for frame, field in zip(islice(cycle(frames), FRAMES), fields, strict=False)
            ]
            return await drivers.time_sink(channel, STREAM, sent, in_flight=IN_FLIGHT)

        async def unary(*, with_numbers: bool) -> drivers.Rate:
            fields = numbers if with_numbers else cycle([b""])
            sent = [
                call + field
                for call, field in zip(islice(cycle(calls), CALLS), fields, strict=False)
            ]
            return await drivers.time_unary(channel, UNARY, sent, in_flight=IN_FLIGHT)

        return [
            await drivers.alternate(
                name,
                "msg/s",
                WANTED,
                partial(send, with_numbers=True),
                partial(send, with_numbers=False),
                rounds=rounds,
                limit_name="without sequences",
            )
            for name, send in (
                (f"produce stream with sequences, burst of {FRAMES} batches", stream),
                (f"produce with sequences, one message a call, {CALLS} calls", unary),
            )
        ]


def run(*, rounds: int) -> list[Figure]:
    """Start a writer, and time it."""
    with drivers.scratch_store() as store, drivers.service("writer", store, *BURSTS) as (writer, _):
        return loops.run(measure(writer, store / "commitlog", rounds=rounds))


if __name__ == "__main__":
    show(run(rounds=drivers.rounds_given()))
