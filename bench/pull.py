"""Pulling from the page cache over gRPC beside an empty server stream of the same size."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Final

import grpc

from bench import drivers, produce
from bench.controls import echo
from bench.figures import Figure, show
from penstock.v1 import reader_pb2, reader_pb2_grpc, writer_pb2, writer_pb2_grpc
from services import loops

QUEUE_MIB: Final = 64  # in each queue pulled
FRAMES: Final = QUEUE_MIB * 16 * produce.QUEUES


async def measure(writer: str, reader: str, transport: str, *, rounds: int) -> list[Figure]:
    """Fill a topic, then time a stream of pulls against a stream of nothing."""
    async with (
        grpc.aio.insecure_channel(writer, drivers.CLIENT_OPTIONS) as filling,
        grpc.aio.insecure_channel(reader, drivers.CLIENT_OPTIONS) as ours,
        grpc.aio.insecure_channel(transport, drivers.CLIENT_OPTIONS) as limit,
    ):
        stub = drivers.stub(writer_pb2_grpc.WriterStub, filling)
        await stub.CreateTopic(
            writer_pb2.CreateTopicRequest(name=produce.TOPIC, queue_count=produce.QUEUES)
        )
        await drivers.time_sink(
            filling,
            produce.STREAM,
            islice(cycle(produce.batches()), FRAMES),
            in_flight=32,
        )
        last = reader_pb2.PullRequest(
            topic=produce.TOPIC, queue_offset=FRAMES * produce.RECORDS // produce.QUEUES - 1,
            wait_ms=20_000, max_messages=1,
        )  # fmt: skip
        await drivers.stub(reader_pb2_grpc.ReaderStub, ours).Pull(last)
        request = reader_pb2.PullStreamRequest(
            topic=produce.TOPIC, max_bytes=echo.RESPONSE_BYTES
        ).SerializeToString()
        responses, size = str(QUEUE_MIB).encode(), QUEUE_MIB << 20
        return [
            await drivers.alternate(
                "pull stream, 1 MiB responses",
                "MiB/s",
                0.7,
                lambda: drivers.time_source(
                    ours, "/penstock.v1.Reader/PullStream", request, at_least=size
                ),
                lambda: drivers.time_source(limit, echo.SOURCE, responses, at_least=size),
                rounds=rounds,
            )
        ]


def run(*, rounds: int) -> list[Figure]:
    """Start a writer, a reader and an echo server, and time them."""
    with (
        drivers.scratch_store() as store,
        drivers.process(
            "services.writer", "--store", str(store), "--listen", "127.0.0.1:0",
            "--unflushed-bytes-max", "4GiB", *produce.COLD,
        ) as (writer, _),
        drivers.process(
            "services.reader", "--store", str(store), "--listen", "127.0.0.1:0"
        ) as (reader, _),
        drivers.process("bench.controls.echo") as (transport, _),
    ):  # fmt: skip
        return loops.run(measure(writer, reader, transport, rounds=rounds))


if __name__ == "__main__":
    show(run(rounds=drivers.rounds_given()))
