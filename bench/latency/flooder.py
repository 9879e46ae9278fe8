"""A hostile caller, ``bench.latency.flooder KIND WRITER READER TOPIC [ACCESS_KEY SECRET_KEY]``: goes on until
it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from bench import drivers
from bench.secure import SignedChannel
from penstock.credentials import Credentials
from penstock.v1 import common_pb2, reader_pb2, writer_pb2
from services import loops

CALLS: Final = 1_024  # under way at once, which one connection may have
CALLS_BEHIND_A_PROXY: Final = 8  # that one caller has under way
SLOW_READERS: Final = 200
HEADER_BYTES: Final = 12 << 10  # of the 16 KiB that a call may bring
PRODUCE: Final = "/penstock.v1.Writer/Produce"
PULL_STREAM: Final = "/penstock.v1.Reader/PullStream"


def _message(topic: str) -> bytes:
    message = common_pb2.Message(topic=topic, body=bytes(100), queue_id=0)
    return writer_pb2.ProduceRequest(messages=[message]).SerializeToString()


async def many_calls(writer: Any, _reader: Any, topic: str) -> None:
    """Keep as many calls under way as one connection may have."""
    call, request = writer.unary_unary(PRODUCE), _message(topic)
    await _by_many(CALLS, lambda: call(request))


async def few_calls(writer: Any, _reader: Any, topic: str) -> None:
    """Make calls without a pause, as many at once as a proxy lets through."""
    call, request = writer.unary_unary(PRODUCE), _message(topic)
    await _by_many(CALLS_BEHIND_A_PROXY, lambda: call(request))


async def big_headers(writer: Any, _reader: Any, topic: str) -> None:
    """Bring nearly as much metadata as a call may, 64 calls at once."""
    call, request = writer.unary_unary(PRODUCE), _message(topic)
    metadata = (("x-filler", "x" * HEADER_BYTES),)
    await _by_many(64, lambda: call(request, metadata=metadata))


async def taken_back(writer: Any, _reader: Any, topic: str) -> None:
    """Begin calls and take each back at once."""
    call, request = writer.unary_unary(PRODUCE), _message(topic)

    async def one() -> None:
        begun = call(request)
        await asyncio.sleep(0)
        begun.cancel()
        await asyncio.sleep(0.001)

    await _by_many(64, one)


async def slow_readers(_writer: Any, reader: Any, topic: str) -> None:
    """Open streams of all there is and read nothing of them."""
    request = reader_pb2.PullStreamRequest(topic=topic, queue_id=0, queue_offset=0, follow=True)
    stream = reader.unary_stream(PULL_STREAM)
    held = [stream(request.SerializeToString()) for _ in range(SLOW_READERS)]
    for each in held:
        await each.read()
    await asyncio.Event().wait()


KINDS: Final[dict[str, Callable[[Any, Any, str], Awaitable[None]]]] = {
    "1,024 calls on one connection": many_calls,
    "8 calls at once, behind a proxy": few_calls,
    "metadata of 12 KiB, 64 calls at once": big_headers,
    "calls taken back": taken_back,
    "200 streams that nobody reads": slow_readers,
}


async def _by_many(count: int, call: Callable[[], Awaitable[Any]]) -> None:
    async def again() -> None:
        while True:
            try:
                await call()
            except (grpc.RpcError, asyncio.CancelledError):
                await asyncio.sleep(0.001)

    await asyncio.gather(*(again() for _ in range(count)))


async def _flood(kind: str, writer: str, reader: str, topic: str, *keys: str) -> None:
    async with (
        grpc.aio.insecure_channel(writer, drivers.CLIENT_OPTIONS) as to_writer,
        grpc.aio.insecure_channel(reader, drivers.CLIENT_OPTIONS) as to_reader,
    ):
        await asyncio.gather(to_writer.channel_ready(), to_reader.channel_ready())
        print("flood is on its way", flush=True)
        channels: list[Any] = [to_writer, to_reader]
        if keys:
            channels = [SignedChannel(each, Credentials(*keys)) for each in channels]
        at_writer, at_reader = channels
        await KINDS[kind](at_writer, at_reader, topic)


if __name__ == "__main__":
    loops.run(_flood(*sys.argv[1:]))
