"""Producing over gRPC beside the empty transport: a stream of 64 KiB batches, and unary calls."""

from __future__ import annotations

from typing import Final

import grpc

from bench import echo
from penstock.v1 import common_pb2, writer_pb2, writer_pb2_grpc
from services import loops
from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch

TOPIC: Final = "bench"
QUEUES: Final = 8
RECORDS: Final = 64  # of about 1 KiB in a batch
FRAMES: Final = 2_000  # of a round
CALLS: Final = 4_000
IN_FLIGHT: Final = 64
STREAM: Final = "/penstock.v1.Writer/ProduceStream"
UNARY: Final = "/penstock.v1.Writer/Produce"


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
    """Return a serialized request with one structured message of 1 KiB."""
    return writer_pb2.ProduceRequest(
        messages=[
            common_pb2.Message(topic=TOPIC, body=b"x" * 1024, keys=["order-1234567"], tag="new")
        ]
    ).SerializeToString()


async def measure(writer: str, transport: str, *, rounds: int) -> list[echo.Measure]:
    """Time both forms of producing against a running writer and echo server."""
    frames, request = batches(), message()
    async with (
        grpc.aio.insecure_channel(writer, echo.CLIENT_OPTIONS) as ours,
        grpc.aio.insecure_channel(transport, echo.CLIENT_OPTIONS) as limit,
    ):
        stub = echo.stub(writer_pb2_grpc.WriterStub, ours)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name=TOPIC, queue_count=QUEUES))
        return [
            await echo.alternate(
                f"produce stream, {len(frames[0]) // 1024} KiB batches",
                "frames/s",
                0.7,
                lambda: echo.time_sink(ours, STREAM, frames, count=FRAMES, in_flight=IN_FLIGHT),
                lambda: echo.time_sink(limit, echo.SINK, frames, count=FRAMES, in_flight=IN_FLIGHT),
                rounds=rounds,
            ),
            await echo.alternate(
                "produce, one message a call, 64 in flight",
                "calls/s",
                0.75,
                lambda: echo.time_unary(ours, UNARY, request, calls=CALLS, in_flight=IN_FLIGHT),
                lambda: echo.time_unary(
                    limit, echo.UNARY, request, calls=CALLS, in_flight=IN_FLIGHT
                ),
                rounds=rounds,
            ),
        ]


def run(*, rounds: int) -> list[echo.Measure]:
    """Start a writer and an echo server, and time them."""
    with (
        echo.scratch_store() as store,
        echo.process(
            "services.writer", "--store", str(store), "--listen", "127.0.0.1:0",
            "--unflushed-bytes-max", "4GiB",
        ) as (writer, _),
        echo.process("bench.echo") as (transport, _),
    ):  # fmt: skip
        return loops.run(measure(writer, transport, rounds=rounds))


if __name__ == "__main__":
    options = echo.arguments()
    echo.report(run(rounds=options.rounds), as_json=options.json)
