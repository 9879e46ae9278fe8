"""Producing over gRPC: a stream of batches, and messages one a call; each beside its control.

The rows of seconds are of a writer with default settings, which refuses what the device cannot take in
time: what was refused is sent again and counts once. The stream's control is bare files, bound by the
same device, the calls' is the empty transport. A burst, timed beside the empty stream, shows what the
store adds where no device is waited for: the bound on what is unflushed is out of its way, and its
log file is warmed whole, as it is by default where the machine has the memory, or not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from bench import drivers
from bench.controls import echo
from bench.controls.bare_files import BareFiles, bare_files
from bench.figures import Figure, command
from bench.resident import wait_until_warmed
from penstock.v1 import common_pb2, reader_pb2, reader_pb2_grpc, writer_pb2, writer_pb2_grpc
from services import loops
from services.config.settings import WriterSettings
from storage.config import StoreConfig
from storage.files.allocator import WARM_FILES
from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch

TOPIC: Final = "bench"
QUEUES: Final = 8
RECORDS: Final = echo.BATCH_RECORDS
BODY_BYTES: Final = 1024
FRAMES: Final = 500  # of a round of bursts
FRAMES_COLD: Final = 2_000  # twice what is warmed ahead of the appends in any case
IN_FLIGHT: Final = 64
LOG_FILE_BYTES: Final = 1 << 30
FRAMES_WARMED: Final = 12_000  # of all rounds together: 0.8 of a commit log file
LONG_ROUNDS: Final = 3
LONG_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 60.0
STREAM_WANTED: Final = 0.7  # of the control
CALLS_WANTED: Final = 0.75
BURSTS: Final = ("--unflushed-bytes-max", "4GiB")  # never busy because of what is not synced
COLD: Final = ("--warm-cache-bytes-max", "0")
STREAM: Final = "/penstock.v1.Writer/ProduceStream"
UNARY: Final = "/penstock.v1.Writer/Produce"


class Channels(NamedTuple):
    """To the writer, with its stub, and to the echo server that is its limit."""

    stub: Any
    ours: grpc.aio.Channel
    limit: grpc.aio.Channel


def encoded(queue_id: int, body: bytes) -> bytes:
    """Return a batch as clients encode it: 64 records with this body."""
    record = encode_for_batch(
        topic=TOPIC,
        queue_id=queue_id,
        body=body,
        properties_bytes=encode_properties({"KEYS": "order-1234567", "TAGS": "new"}),
        flag=0,
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_000,
        born_host="127.0.0.1:1",
    )
    return record * RECORDS


def batches(body_bytes: int | None = None) -> list[bytes]:
    """Return a serialized request for each queue: 64 records with such bodies, or of 1 KiB as a whole."""
    if body_bytes is None:
        body_bytes = 1024 - len(encoded(0, b"")) // RECORDS
    body = b"x" * body_bytes
    return [
        writer_pb2.ProduceBatchRequest(records=encoded(queue_id, body)).SerializeToString()
        for queue_id in range(QUEUES)
    ]


def message() -> bytes:
    """Return a serialized request with one message, its body 1 KiB."""
    return writer_pb2.ProduceRequest(
        messages=[
            common_pb2.Message(
                topic=TOPIC, body=b"x" * BODY_BYTES, keys=["order-1234567"], tag="new"
            )
        ]
    ).SerializeToString()


async def fill(writer: str, reader: str, frames: int, body_bytes: int | None = None) -> None:
    """Make the topic, store so many batches in it, and return when the reader serves the last."""
    async with (
        grpc.aio.insecure_channel(writer, drivers.CLIENT_OPTIONS) as filling,
        grpc.aio.insecure_channel(reader, drivers.CLIENT_OPTIONS) as reading,
    ):
        stub = drivers.stub(writer_pb2_grpc.WriterStub, filling)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name=TOPIC, queue_count=QUEUES))
        requests = islice(cycle(batches(body_bytes)), frames)
        await drivers.time_sink(filling, STREAM, requests, in_flight=32)
        last = reader_pb2.PullRequest(
            topic=TOPIC, queue_offset=frames * RECORDS // QUEUES - 1, wait_ms=20_000, max_messages=1
        )
        await drivers.stub(reader_pb2_grpc.ReaderStub, reading).Pull(last)


@asynccontextmanager
async def channels(writer: str, transport: str) -> AsyncIterator[Channels]:
    """Connect to a running writer and to an echo server, and make the topic."""
    async with (
        grpc.aio.insecure_channel(writer, drivers.CLIENT_OPTIONS) as ours,
        grpc.aio.insecure_channel(transport, drivers.CLIENT_OPTIONS) as limit,
    ):
        stub = drivers.stub(writer_pb2_grpc.WriterStub, ours)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name=TOPIC, queue_count=QUEUES))
        yield Channels(stub, ours, limit)


async def measure_burst(
    writer: str, transport: str, name: str, *, count: int, rounds: int, log: Path | None = None
) -> Figure:
    """Time ``count`` frames a round on a stream to a running writer, once the files in ``log`` are warmed."""
    frames = batches()
    async with channels(writer, transport) as to:
        if log is not None:
            # With the first append the second file is made, which must not be warmed in a round.
            await drivers.time_sink(to.ours, STREAM, frames[:1], in_flight=1)
            await asyncio.to_thread(wait_until_warmed, log, LOG_FILE_BYTES)

        async def send(channel: grpc.aio.Channel, method: str) -> drivers.Rate:
            burst = islice(cycle(frames), count)
            return await drivers.time_sink(channel, method, burst, in_flight=IN_FLIGHT)

        figure = await drivers.alternate(
            f"produce stream, burst of {count} batches, {name}, whole records of 1 KiB",
            "msg/s",
            STREAM_WANTED,
            lambda: send(to.ours, STREAM),
            lambda: send(to.limit, echo.SINK),
            rounds=rounds,
        )
        if log is not None:
            last = await to.stub.ProduceBatch(writer_pb2.ProduceBatchRequest.FromString(frames[0]))
            if last.end_commit_offset > LOG_FILE_BYTES:
                raise RuntimeError(
                    f"the rounds went on in another file, to {last.end_commit_offset}"
                )
    return figure


async def settle(to: Channels) -> None:
    """Wait until the writer has synced all it stored, so that the device is free for the other side."""
    until = time.perf_counter() + SETTLE_SECONDS
    while True:
        now = await to.stub.GetWriterStatus(writer_pb2.GetWriterStatusRequest())
        if now.flushed_offset >= now.appended_offset:
            return
        if time.perf_counter() > until:
            raise RuntimeError(f"not synced within {SETTLE_SECONDS:.0f} s")
        await asyncio.sleep(0.02)


async def measure_long(
    writer: str, transport: str, bare: BareFiles, *, rounds: int, seconds: float
) -> list[Figure]:
    """Time both forms of producing for ``seconds`` a round against a running writer."""
    frames, requests = batches(BODY_BYTES), [message()]
    async with channels(writer, transport) as to:

        async def stream() -> drivers.Rate:
            sent = drivers.for_seconds(frames, seconds)
            rate = await drivers.time_sink(to.ours, STREAM, sent, in_flight=IN_FLIGHT)
            await settle(to)
            return rate

        async def bare_device() -> drivers.Rate:
            rate = await asyncio.to_thread(bare.rate, seconds)
            await asyncio.to_thread(bare.settle)
            return drivers.Rate(rate)

        async def calls(channel: grpc.aio.Channel, method: str) -> drivers.Rate:
            sent = drivers.for_seconds(requests, seconds)
            return await drivers.time_unary(channel, method, sent, in_flight=IN_FLIGHT)

        name = f"{seconds:g} s with default settings"
        return [
            await drivers.alternate(
                f"produce stream, {name}, bodies of 1 KiB, 64 a batch",
                "msg/s",
                STREAM_WANTED,
                stream,
                bare_device,
                rounds=rounds,
                limit_name="bare files",
            ),
            await drivers.alternate(
                f"produce, one message a call, 64 in flight, {name}, body of 1 KiB",
                "msg/s",
                CALLS_WANTED,
                lambda: calls(to.ours, UNARY),
                lambda: calls(to.limit, echo.UNARY),
                rounds=rounds,
            ),
        ]


def run(
    *, rounds: int = drivers.ROUNDS, long_rounds: int = LONG_ROUNDS, seconds: float = LONG_SECONDS
) -> list[Figure]:
    """Start writers and an echo server, and time them."""
    sources = [encoded(queue_id, b"x" * BODY_BYTES) for queue_id in range(QUEUES)]
    with drivers.process("bench.controls.echo") as (transport, _):
        with (
            drivers.scratch_store() as store,
            bare_files(store.parent / "bare", sources, RECORDS, StoreConfig()) as bare,
            drivers.service("writer", store) as (writer, _),
        ):
            figures = loops.run(
                measure_long(writer, transport, bare, rounds=long_rounds, seconds=seconds)
            )
        with (
            drivers.scratch_store() as store,
            drivers.service("writer", store, *BURSTS) as (writer, _),
        ):
            config = WriterSettings(store=store).store_config()
            warms = config.warm_cache_bytes_max >= WARM_FILES * LOG_FILE_BYTES
            burst = measure_burst(
                writer, transport, "files warmed whole" if warms else "files not warmed",
                count=min(FRAMES, FRAMES_WARMED // (rounds + 1)), rounds=rounds,
                log=store / "commitlog" if warms else None,
            )  # fmt: skip
            figures.append(loops.run(burst))
        with (
            drivers.scratch_store() as store,
            drivers.service("writer", store, *BURSTS, *COLD) as (writer, _),
        ):
            burst = measure_burst(
                writer, transport, "files not warmed", count=FRAMES_COLD, rounds=rounds
            )
            figures.append(loops.run(burst))
    return figures


if __name__ == "__main__":
    command(run)
