"""Pulling from the page cache over gRPC beside an empty server stream of the same size."""

from __future__ import annotations

from typing import Final

import grpc

from bench import drivers, produce
from bench.controls import echo
from bench.figures import Figure, command
from penstock.v1 import reader_pb2
from services import loops

QUEUE_MIB: Final = 64  # in each queue pulled
FRAMES: Final = QUEUE_MIB * 16 * produce.QUEUES


async def measure(reader: str, transport: str, *, rounds: int) -> list[Figure]:
    """Time a stream of pulls of a filled topic against a stream of nothing."""
    async with (
        grpc.aio.insecure_channel(reader, drivers.CLIENT_OPTIONS) as ours,
        grpc.aio.insecure_channel(transport, drivers.CLIENT_OPTIONS) as limit,
    ):
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


def run(*, rounds: int = drivers.ROUNDS) -> list[Figure]:
    """Start a writer, a reader and an echo server, and time them."""
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store, *produce.BURSTS, *produce.COLD) as (writer, _),
        drivers.service("reader", store) as (reader, _),
        drivers.process("bench.controls.echo") as (transport, _),
    ):
        loops.run(produce.fill(writer, reader, FRAMES))
        return loops.run(measure(reader, transport, rounds=rounds))


if __name__ == "__main__":
    command(run)
