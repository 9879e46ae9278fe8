"""Load on NATS JetStream by nats-py."""

from __future__ import annotations

import asyncio
from typing import Any

import nats

from bench.peers.clients.python.meter import ARGUMENTS, BODIES, Passes, Window, number, payloads


async def produce(size_bytes: int, batch: int, in_flight: int) -> None:
    """Publish with up to ``batch`` x ``in_flight`` messages unanswered."""
    connection = await nats.connect(f"nats://{ARGUMENTS['address']}")
    streams = connection.jetstream(publish_async_max_pending=batch * in_flight)
    bodies, window, sent = payloads(size_bytes), Window(), 0
    room = asyncio.Semaphore(batch * in_flight)

    def answered(future: asyncio.Future[Any]) -> None:
        room.release()
        if error := future.exception():
            window.fail(error)
        else:
            window.acknowledged(1)

    while window.going():
        await room.acquire()
        future = await streams.publish_async("bench-0", bodies[sent % BODIES], wait_stall=30)
        future.add_done_callback(answered)
        sent += 1
        if sent % batch == 0:
            await asyncio.sleep(0)


async def consume() -> None:
    """Read by an ordered consumer, a new one each pass."""
    connection = await nats.connect(f"nats://{ARGUMENTS['address']}")
    streams = connection.jetstream()
    passes, more = Passes(), True
    while more:
        finished = asyncio.get_running_loop().create_future()
        count = 0

        async def take(message: Any, finished: asyncio.Future[None] = finished) -> None:
            nonlocal count
            count += len(message.data) > 0
            if count == passes.backlog:
                finished.set_result(None)

        reading = await streams.subscribe(
            "bench-0", ordered_consumer=True, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        await finished
        await reading.unsubscribe()
        more = passes.end(count)


if __name__ == "__main__":
    if ARGUMENTS["operation"] == "consume":
        asyncio.run(consume())
    else:
        asyncio.run(
            produce(number("size_bytes", 1024), number("batch", 64), number("in_flight", 64))
        )
