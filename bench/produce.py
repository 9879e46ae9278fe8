"""Producing over gRPC beside the empty transport: a stream of 64 KiB batches, and unary calls.

The stream is timed twice: as a writer is by default, which has warmed its commit log file where the
machine has the memory, and with a writer that has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from bench import echo
from bench.resident import wait_until_warmed
from penstock.v1 import common_pb2, writer_pb2, writer_pb2_grpc
from services import loops
from services.settings import WriterSettings
from storage.files.allocator import WARM_FILES
from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch

TOPIC: Final = "bench"
QUEUES: Final = 8
RECORDS: Final = 64  # of about 1 KiB in a batch
FRAMES: Final = 500  # of a round
FRAMES_COLD: Final = 2_000  # twice what is warmed ahead of the appends in any case
CALLS: Final = 1_000
IN_FLIGHT: Final = 64
LOG_FILE_BYTES: Final = 1 << 30
FRAMES_WARMED: Final = 12_000  # of all rounds together: 0.8 of a commit log file
COLD: Final = ("--warm-cache-bytes-max", "0")
STREAM: Final = "/penstock.v1.Writer/ProduceStream"
UNARY: Final = "/penstock.v1.Writer/Produce"


class Channels(NamedTuple):
    """To the writer, with its stub, and to the echo server that is its limit."""

    stub: Any
    ours: grpc.aio.Channel
    limit: grpc.aio.Channel


def batches() -> list[bytes]:
    """Return a serialized request for each queue, as clients send them: 64 records, 64 KiB together."""
    properties = encode_properties({"KEYS": "order-1234567", "TAGS": "new"})

    def record(queue_id: int, body: bytes) -> bytes:
        return encode_for_batch(
            topic=TOPIC,
            queue_id=queue_id,
            body=body,
            properties_bytes=properties,
            flag=0,
            sys_flag=0,
            born_timestamp_ms=1_700_000_000_000,
            born_host="127.0.0.1:1",
        )

    body = b"x" * (1024 - len(record(0, b"")))
    return [
        writer_pb2.ProduceBatchRequest(records=record(queue_id, body) * RECORDS).SerializeToString()
        for queue_id in range(QUEUES)
    ]


def message() -> bytes:
    """Return a serialized request with one message of 1 KiB."""
    return writer_pb2.ProduceRequest(
        messages=[
            common_pb2.Message(topic=TOPIC, body=b"x" * 1024, keys=["order-1234567"], tag="new")
        ]
    ).SerializeToString()


@asynccontextmanager
async def channels(writer: str, transport: str) -> AsyncIterator[Channels]:
    """Connect to a running writer and to an echo server, and make the topic."""
    async with (
        grpc.aio.insecure_channel(writer, echo.CLIENT_OPTIONS) as ours,
        grpc.aio.insecure_channel(transport, echo.CLIENT_OPTIONS) as limit,
    ):
        stub = echo.stub(writer_pb2_grpc.WriterStub, ours)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name=TOPIC, queue_count=QUEUES))
        yield Channels(stub, ours, limit)


async def measure_stream(
    to: Channels, name: str, frames: list[bytes], *, count: int, rounds: int
) -> echo.ServiceFigure:
    """Time ``count`` frames a round on a stream."""
    return await echo.alternate(
        name,
        "frames/s",
        0.7,
        lambda: echo.time_sink(to.ours, STREAM, frames, count=count, in_flight=IN_FLIGHT),
        lambda: echo.time_sink(to.limit, echo.SINK, frames, count=count, in_flight=IN_FLIGHT),
        rounds=rounds,
    )


async def measure(
    writer: str, transport: str, log: Path | None, *, rounds: int
) -> list[echo.ServiceFigure]:
    """Time both forms of producing against a running writer, once its files ``log`` are warmed."""
    frames, request = batches(), message()
    async with channels(writer, transport) as to:
        if log is not None:
            # With the first append the second file is made, which must not be warmed in a round.
            await echo.time_sink(to.ours, STREAM, frames, count=1, in_flight=1)
            await asyncio.to_thread(wait_until_warmed, log, LOG_FILE_BYTES)
        stream = await measure_stream(
            to,
            f"produce stream, {len(frames[0]) // 1024} KiB batches",
            frames,
            count=min(FRAMES, FRAMES_WARMED // (rounds + 1)),
            rounds=rounds,
        )
        last = await to.stub.ProduceBatch(writer_pb2.ProduceBatchRequest.FromString(frames[0]))
        if last.end_commit_offset > LOG_FILE_BYTES:
            raise RuntimeError(f"the rounds went on in another file, to {last.end_commit_offset}")
        unary = await echo.alternate(
            "produce, one message a call, 64 in flight",
            "calls/s",
            0.75,
            lambda: echo.time_unary(to.ours, UNARY, request, calls=CALLS, in_flight=IN_FLIGHT),
            lambda: echo.time_unary(
                to.limit, echo.UNARY, request, calls=CALLS, in_flight=IN_FLIGHT
            ),
            rounds=rounds,
        )
        return [stream, unary]


async def measure_cold(writer: str, transport: str, *, rounds: int) -> list[echo.ServiceFigure]:
    """Time the stream against a running writer that touches memory 64 MiB ahead and no more."""
    frames = batches()
    async with channels(writer, transport) as to:
        name = f"produce stream, files not warmed, {len(frames[0]) // 1024} KiB"
        return [await measure_stream(to, name, frames, count=FRAMES_COLD, rounds=rounds)]


def run(*, rounds: int) -> list[echo.ServiceFigure]:
    """Start writers and an echo server, and time them."""
    with echo.process("bench.echo") as (transport, _):
        with echo.scratch_store() as store, writing(store) as (writer, _):
            config = WriterSettings(store=store).store_config()
            warms = config.warm_cache_bytes_max >= WARM_FILES * LOG_FILE_BYTES
            log = store / "commitlog" if warms else None
            measures = loops.run(measure(writer, transport, log, rounds=rounds))
        with echo.scratch_store() as store, writing(store, *COLD) as (writer, _):
            measures += loops.run(measure_cold(writer, transport, rounds=rounds))
    return measures


def writing(store: Path, *options: str) -> AbstractContextManager[tuple[str, int]]:
    """Run a writer that is never busy because of what is not synced yet."""
    return echo.process(
        "services.writer", "--store", str(store), "--listen", "127.0.0.1:0",
        "--unflushed-bytes-max", "4GiB", *options,
    )  # fmt: skip


if __name__ == "__main__":
    options = echo.arguments()
    echo.report(run(rounds=options.rounds), as_json=options.json)
