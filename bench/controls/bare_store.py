"""The writer's and the reader's methods on the services' transport, where nothing is checked or stored.

What a client reaches here bounds what it can reach on Penstock (``python -m bench.peers --peer bare``,
``bench.trickle``). Records have one size. The argument is the port.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.controls import bare_server
from bench.controls.echo import RESPONSE_BYTES, UNARY_ANSWER
from penstock.v1 import reader_pb2, writer_pb2
from services import loops, wire
from services.config.settings import WriterSettings
from services.rpc.frame_stream import FrameStream
from services.rpc.served_call import Handler
from services.writer.batch_frames import batch_records, stream_stored
from services.writer.produce_stream import MESSAGE_BYTES
from storage.format.record import encode_for_batch
from storage.format.record_layout import QUEUE_OFFSET_POSITION
from storage.message import BatchResult, QueueRange

_HOST: Final = "127.0.0.1:1"
_OFFSET: Final = slice(QUEUE_OFFSET_POSITION, QUEUE_OFFSET_POSITION + 8)


@cache
def _stored(count: int) -> bytes:
    ranges = (QueueRange("bench-0", 0, 1 << 20, count),)
    return stream_stored(BatchResult(1 << 30, 1 << 31, count, 1_700_000_000_000, ranges))


class _Frames(FrameStream[int]):
    """Outcomes are how many records a frame had."""

    def __init__(self, context: Any, store: _BareStore) -> None:
        settings = WriterSettings(store=Path("unused"))
        super().__init__(
            context, asyncio.Event(), in_flight_max=settings.stream_batches_max,
            message_bytes=MESSAGE_BYTES,
        )  # fmt: skip
        self._store = store

    def _take(self, frame: bytes) -> Awaitable[None] | None:
        self._put(self._store.take(batch_records(frame)))
        return None

    async def _known(self, outcome: int) -> None:
        pass

    def _answer_of(self, outcome: int) -> bytes | None:
        return _stored(outcome)


class _BareStore:
    """Counts records, and keeps as many as one answer of the reader has."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._record_size = 0
        self._count = 0
        self._following: set[asyncio.Queue[bytearray]] = set()

    def take(self, records: memoryview) -> int:
        """Hand records on to those who follow; return how many there are."""
        self._record_size = int.from_bytes(records[:4], "big")
        count = len(records) // self._record_size
        if len(self._kept) < RESPONSE_BYTES:
            self._kept += records
        self._count += count
        for queue in self._following:
            queue.put_nowait(bytearray(records))
        return count

    async def produce(self, request: bytes, _context: Any) -> bytes:
        if self._following:
            for each in writer_pb2.ProduceRequest.FromString(request).messages:
                record = encode_for_batch(each.topic, each.queue_id, each.body, b"", 0, 0, 0, _HOST)
                self.take(memoryview(record))
        return UNARY_ANSWER

    async def produce_stream(self, context: Any) -> None:
        await _Frames(context, self).serve()

    async def pull_stream(self, request: bytes, context: Any) -> None:
        if reader_pb2.PullStreamRequest.FromString(request).follow:
            queue: asyncio.Queue[bytearray] = asyncio.Queue()
            self._following.add(queue)
            offset = 0
            while True:
                offset = await self._answer(context, await queue.get(), offset)
        offset = 0
        while offset < self._count:
            left = (self._count - offset) * self._record_size
            offset = await self._answer(context, self._kept[:left], offset)

    async def _answer(self, context: Any, records: bytearray, offset: int) -> int:
        rows = np.frombuffer(records, np.uint8).reshape(-1, self._record_size)
        end = offset + len(rows)
        rows[:, _OFFSET] = np.arange(offset, end, dtype=">i8").view(np.uint8).reshape(-1, 8)
        head = reader_pb2.PullResponse(
            status=reader_pb2.FOUND, next_offset=end, max_offset=end, record_count=len(rows)
        )  # fmt: skip
        await context.write(b"".join(wire.with_records(head, [memoryview(records)])))
        return end


async def _serve(port: str = "0") -> None:
    store = _BareStore()
    handlers = {
        "penstock.v1.Writer": {
            "Produce": Handler(takes_stream=False, run=store.produce, is_brief=True),
            "ProduceStream": Handler(takes_stream=True, run=store.produce_stream),
        },
        "penstock.v1.Reader": {"PullStream": Handler(takes_stream=False, run=store.pull_stream)},
    }
    settings = WriterSettings(store=Path("unused"))
    await bare_server.serve("bare store", settings, handlers, address=f"127.0.0.1:{port}")


if __name__ == "__main__":
    loops.run(_serve(*sys.argv[1:]))
