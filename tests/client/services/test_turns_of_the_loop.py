"""The event loop has its turns beside whoever iterates and never waits, as threads fill what is iterated over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from real_processes import until

from penstock import AsyncClient, Client
from penstock.values import Message

MESSAGES = 1_000
WORK_S = 1.0  # in all, of a body that does not await
WITHOUT_A_BEAT_S = 0.25  # of it at most


def records(client: AsyncClient, topic: str) -> AsyncIterator[object]:
    return client.consume(topic, follow=False)


def pulls(client: AsyncClient, topic: str) -> AsyncIterator[object]:
    return client.pull_stream(topic, 0, 0, max_bytes=4 << 10)


def messages(client: AsyncClient, topic: str) -> AsyncIterator[object]:
    return client.subscribe(topic, group="one-by-one", idle_s=2)


def batches(client: AsyncClient, topic: str) -> AsyncIterator[object]:
    return client.subscribe(topic, group="many", idle_s=2).batches(16)


async def sends(client: AsyncClient, topic: str) -> AsyncIterator[object]:
    async with client.producer() as producer:
        for _ in range(MESSAGES):
            yield await producer.send(topic, b"x", queue_id=0)


def store(client: Client, topic: str, count: int) -> None:
    client.create_topic(topic, queues=1)
    client.produce_many([Message(topic=topic, body=b"x" * 100)] * count)
    until(lambda: is_dispatched(client))


def is_dispatched(client: Client) -> bool:
    status = client.writer_status()
    return status.dispatched_offset >= status.appended_offset


@pytest.mark.parametrize(
    ("iterate", "items"),
    [(records, 1_000), (pulls, 40), (messages, 1_000), (batches, 60), (sends, 1_000)],
)
async def test_another_task_goes_on_beside_a_body_that_never_waits(
    client: Client, aclient: AsyncClient, iterate: Callable[..., AsyncIterator[Any]], items: int
) -> None:
    """It is counted in work, not in time: a slow machine does less of it between two beats."""
    topic = f"turns-{iterate.__name__}"
    store(client, topic, MESSAGES)
    worked = [0]

    async def beat() -> None:
        while True:
            worked.append(0)
            await asyncio.sleep(0.001)

    heart = asyncio.create_task(beat())
    async for _ in iterate(aclient, topic):
        time.sleep(WORK_S / items)
        worked[-1] += 1
    heart.cancel()

    assert sum(worked) >= items
    assert max(worked) <= max(2, items * WITHOUT_A_BEAT_S / WORK_S)


async def test_a_time_out_ends_an_iteration_that_never_waits(
    client: Client, aclient: AsyncClient
) -> None:
    store(client, "timed-out", MESSAGES)
    seen = 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            async for _ in aclient.consume("timed-out", follow=False):
                time.sleep(0.002)
                seen += 1

    assert seen < MESSAGES


async def test_leases_are_renewed_beside_a_body_that_never_waits(
    client: Client, aclient: AsyncClient
) -> None:
    """All are leased at first, and their turn comes when that lease has long ended."""
    store(client, "working", 150)
    attempts = []

    async with aclient.subscribe("working", group="g", lease_ms=1_000, idle_s=2) as subscription:
        async for message in subscription:
            time.sleep(0.02)
            attempts.append(message.attempt)

    assert attempts == [1] * 150
    assert sum(queue.lag for queue in client.describe_group("g", "working").queues) == 0
