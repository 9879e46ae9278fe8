"""The producer of ``bench.trickle``: so many messages a second, one a call, each with its time."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final

import grpc

from bench import drivers, produce
from penstock.v1 import common_pb2, writer_pb2
from services import loops

BODY_BYTES: Final = 1024
UNANSWERED_MAX: Final = 512  # less than one connection may have under way
_TIME_BYTES: Final = 8
_REST: Final = bytes(BODY_BYTES - _TIME_BYTES)


def sent_at_s(body: bytes | memoryview) -> float:
    """Return when the call was made that a body came with, by the machine's monotonic clock."""
    return int.from_bytes(body[:_TIME_BYTES], "little") / 1e9


async def send(address: str, topic: str, *, queues: int, per_second: int, count: int) -> None:
    """Send messages to the queues in turn, each at its time unless too many are unanswered."""
    async with grpc.aio.insecure_channel(address, drivers.CLIENT_OPTIONS) as channel:
        calls: Any = channel  # bytes in, bytes out
        call = calls.unary_unary(produce.UNARY)
        pending: set[asyncio.Task[Any]] = set()
        failures: list[BaseException] = []

        async def one(number: int) -> None:
            message = common_pb2.Message(
                topic=topic,
                queue_id=number % queues,
                body=time.monotonic_ns().to_bytes(_TIME_BYTES, "little") + _REST,
                keys=[f"order-{number}"],
                tag="new",
            )
            request = writer_pb2.ProduceRequest(messages=[message])
            try:
                await call(request.SerializeToString(), timeout=10)
            except grpc.RpcError as error:
                failures.append(error)

        await channel.channel_ready()
        began = time.monotonic()
        for number in range(count):
            left_s = began + number / per_second - time.monotonic()
            if left_s > 0:
                await asyncio.sleep(left_s)
            while len(pending) >= UNANSWERED_MAX:
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(one(number))
            pending.add(task)
            task.add_done_callback(pending.discard)
        await asyncio.gather(*pending)
        if failures:
            raise failures[0]


if __name__ == "__main__":
    _address, _topic, _queues, _per_second, _count = sys.argv[1:]
    loops.run(
        send(_address, _topic, queues=int(_queues), per_second=int(_per_second), count=int(_count))
    )
