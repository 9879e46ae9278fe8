"""The transport alone: a server like the services' that stores nothing; ``aio`` as argument: on grpc.aio."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from bench.controls import bare_server
from penstock.v1 import writer_pb2
from services import loops
from services.config.settings import WriterSettings
from services.rpc.served_call import Handler

UNARY: Final = "/penstock.bench.Echo/Unary"
SIZED: Final = "/penstock.bench.Echo/Sized"  # an answer of so many bytes
SINK: Final = "/penstock.bench.Echo/Sink"
SOURCE: Final = "/penstock.bench.Echo/Source"
RESPONSE_BYTES: Final = 1 << 20
BATCH_RECORDS: Final = 64  # which the sink says it has stored of each frame
# As long as the writer's answers, and read as they are.
UNARY_ANSWER: Final = writer_pb2.ProduceResponse(
    results=[
        writer_pb2.ProduceResult(
            topic="bench", queue_offset=1 << 20, commit_offset=1 << 30, message_id="0" * 32,
            unique_key="0" * 32, store_timestamp_ms=1_700_000_000_000,
        )
    ]
).SerializeToString()  # fmt: skip
SINK_STORED: Final = writer_pb2.ProduceBatchResponse(
    commit_offset=1 << 30, end_commit_offset=(1 << 30) + (1 << 16), record_count=BATCH_RECORDS,
    store_timestamp_ms=1_700_000_000_000,
    ranges=[writer_pb2.QueueRange(topic="bench", first_queue_offset=1 << 20, count=BATCH_RECORDS)],
)  # fmt: skip
SINK_ANSWER: Final = writer_pb2.ProduceStreamResponse(
    outcomes=[writer_pb2.FrameOutcome(stored=SINK_STORED)]
).SerializeToString()


class _Echo:
    def __init__(self) -> None:
        self._response = bytes(RESPONSE_BYTES)

    async def unary(self, _request: bytes, _context: Any) -> bytes:
        return UNARY_ANSWER

    async def sized(self, request: bytes, _context: Any) -> bytes:
        return self._response[: int(request)]

    async def sink(self, context: Any) -> None:
        await context.read_each(lambda _: context.write(SINK_ANSWER))

    async def source(self, request: bytes, context: Any) -> None:
        for _ in range(int(request)):
            await context.write(self._response)


async def _serve(rpc_server: str) -> None:
    echo = _Echo()
    handlers = {
        "Unary": Handler(takes_stream=False, run=echo.unary),
        "Sized": Handler(takes_stream=False, run=echo.sized),
        "Sink": Handler(takes_stream=True, run=echo.sink),
        "Source": Handler(takes_stream=False, run=echo.source),
    }
    settings = WriterSettings(store=Path("unused"), rpc_server=rpc_server)
    await bare_server.serve("echo", settings, {"penstock.bench.Echo": handlers})


if __name__ == "__main__":
    loops.run(_serve(*sys.argv[1:] or ["core"]))
