"""Streams of pulls and batches are closed by hand, by a block, or with their client."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from real_processes import until

from penstock import AsyncClient, Client, ClientClosed


def test_a_stream_of_pulls_ends_with_its_block_and_leaves_no_thread(client: Client) -> None:
    client.produce("orders", b"0", queue_id=0)
    with client.pull_stream("orders", 0, 0, follow=True) as stream:
        assert next(stream).records[0].body == b"0"
    assert "penstock-stream" not in {thread.name for thread in threading.enumerate()}
    assert list(stream) == []
    stream.close()


def test_a_stream_of_pulls_that_was_never_read_can_be_closed(client: Client) -> None:
    with contextlib.closing(client.pull_stream("orders", 0, 0)) as stream:
        pass
    assert list(stream) == []


def test_batches_end_when_closed_and_leave_the_subscription_open(client: Client) -> None:
    with client.subscribe("orders", group="g") as messages:
        with messages.batches() as batches:
            pass
        assert list(batches) == []
        assert not messages._receiver.is_stopped


def test_a_stream_of_pulls_says_that_its_client_was_closed(client: Client) -> None:
    client.produce("orders", b"0", queue_id=0)
    stream = client.pull_stream("orders", 0, 0, follow=True)
    next(stream)
    unread = client.pull_stream("orders", 0, 0)
    client.close()
    for each in (stream, unread):
        with pytest.raises(ClientClosed):
            next(each)


def test_a_consumer_says_that_it_was_closed_by_another_thread(client: Client) -> None:
    consumer = client.consume("orders", wait_ms=60_000)
    closing = threading.Timer(0.2, consumer.close)
    closing.start()
    with pytest.raises(ClientClosed, match="the consumer was closed"):
        next(consumer)
    closing.join()


def test_a_stream_of_pulls_ends_when_another_thread_closes_it(client: Client) -> None:
    """Both return, whichever learns first that the reading has ended."""
    for _ in range(10):
        stream = client.pull_stream("orders", 0, 0, follow=True)
        results: list[object] = []
        reading = threading.Thread(target=lambda: results.extend(stream), daemon=True)  # noqa: B023
        reading.start()
        until(lambda: stream._ahead._stream is not None)  # noqa: B023
        closing = threading.Thread(target=stream.close, daemon=True)
        closing.start()
        for each in (closing, reading):
            each.join(30)
            assert not each.is_alive()
        assert results == []


async def test_a_consumer_ends_without_a_warning_when_its_client_is_closed(
    aclient: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = asyncio.create_task(anext(aclient.consume("orders", start="latest")))
    await asyncio.sleep(0.5)
    await aclient.close()
    async with asyncio.timeout(30):
        with pytest.raises(ClientClosed):
            await waiting

    assert [each.message for each in caplog.records if each.name.startswith("penstock")] == []


async def test_an_asyncio_stream_of_pulls_ends_when_another_task_closes_it(
    aclient: AsyncClient,
) -> None:
    for _ in range(10):
        stream = aclient.pull_stream("orders", 0, 0, follow=True)
        reading = asyncio.create_task(anext(stream, None))
        await asyncio.sleep(0.02)
        async with asyncio.timeout(30):
            await stream.close()
            assert await reading is None


async def test_an_asyncio_stream_of_pulls_ends_with_its_block_and_leaves_no_thread(
    aclient: AsyncClient,
) -> None:
    await aclient.produce("orders", b"0", queue_id=0)
    async with contextlib.aclosing(aclient.pull_stream("orders", 0, 0, follow=True)) as stream:
        assert (await anext(stream)).records[0].body == b"0"
    assert "penstock-stream" not in {thread.name for thread in threading.enumerate()}
    assert [result async for result in stream] == []
    async with stream:
        await stream.close()
