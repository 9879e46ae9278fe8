"""Work beside the caller's begins after an interrupted start too, and what goes wrong in it reaches the caller."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import patch

import pytest

from penstock import AsyncClient, Cancelled, Client
from penstock._async.connection import AsyncConnection
from penstock._sync.connection import Connection
from penstock.background import Background
from penstock.calls import records
from penstock.calls.call import Call

PATIENCE_S = 60.0
IDLE_S = 5.0  # a subscription that does not wake ends after it


def interrupted(_: threading.Thread) -> None:
    raise KeyboardInterrupt


def interrupt_start(background: Background) -> None:
    with patch.object(threading.Thread, "start", interrupted), pytest.raises(KeyboardInterrupt):
        background.start(lambda: None)


def test_a_thread_whose_start_was_interrupted_is_started_again() -> None:
    background, worked = Background("test"), threading.Event()
    interrupt_start(background)
    background.start(worked.set)
    assert worked.wait(PATIENCE_S)
    background.join()


def test_a_thread_whose_start_was_interrupted_can_be_joined() -> None:
    background = Background("test")
    interrupt_start(background)
    background.stop()
    background.join()


def test_a_thread_that_began_before_its_start_was_interrupted_is_the_only_one() -> None:
    background, counted, ending = Background("test"), threading.Semaphore(0), threading.Event()
    start = threading.Thread.start

    def work() -> None:
        counted.release()
        ending.wait(PATIENCE_S)

    def started_and_interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    with (
        patch.object(threading.Thread, "start", started_and_interrupted),
        pytest.raises(KeyboardInterrupt),
    ):
        background.start(work)
    background.start(work)
    ending.set()
    background.join()
    assert counted.acquire(timeout=PATIENCE_S)
    assert not counted.acquire(blocking=False)


def test_of_two_threads_that_began_after_an_interrupted_start_one_works() -> None:
    background, counted, late = Background("test"), threading.Semaphore(0), []

    def interrupted_before_it_began(thread: threading.Thread) -> None:
        late.append(thread)
        raise KeyboardInterrupt

    with (
        patch.object(threading.Thread, "start", interrupted_before_it_began),
        pytest.raises(KeyboardInterrupt),
    ):
        background.start(counted.release)
    background.start(counted.release)
    late[0].start()
    background.join()
    assert counted.acquire(timeout=PATIENCE_S)
    assert not counted.acquire(blocking=False)


def unexpected(*_: Any) -> Any:
    raise RuntimeError("unexpected")


@pytest.fixture(name="unreadable")
def _unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result of a stream of pulls fails to be read."""
    opened = records.pull_stream

    def unreadable(*arguments: Any, **named: Any) -> Call[Any]:
        call = opened(*arguments, **named)
        return Call(call.method, call.request, unexpected)

    monkeypatch.setattr(records, "pull_stream", unreadable)


@pytest.mark.usefixtures("unreadable")
def test_a_stream_of_pulls_that_fails_unexpectedly_raises_and_does_not_end(client: Client) -> None:
    client.produce("orders", b"0", queue_id=0)
    with pytest.raises(RuntimeError, match="unexpected"):
        next(client.pull_stream("orders", 0, 0))


@pytest.mark.usefixtures("unreadable")
async def test_an_asyncio_stream_of_pulls_that_fails_unexpectedly_raises_and_does_not_end(
    aclient: AsyncClient,
) -> None:
    await aclient.produce("orders", b"0", queue_id=0)
    with pytest.raises(RuntimeError, match="unexpected"):
        await anext(aclient.pull_stream("orders", 0, 0))


async def test_an_asyncio_stream_of_pulls_whose_reading_task_is_cancelled_raises(
    aclient: AsyncClient,
) -> None:
    await aclient.produce("orders", b"0", queue_id=0)
    stream = aclient.pull_stream("orders", 0, 0, follow=True)
    await anext(stream)
    task = stream._ahead.background._task
    assert task is not None
    task.cancel()
    with pytest.raises(Cancelled):
        await asyncio.wait_for(anext(stream), PATIENCE_S)


def test_a_subscription_whose_receive_fails_unexpectedly_raises_and_does_not_wait(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "error_of", unexpected)
    with (
        client.subscribe("orders", group="g", idle_s=IDLE_S) as messages,
        pytest.raises(RuntimeError, match="unexpected"),
    ):
        next(messages)


async def test_an_asyncio_subscription_whose_receive_fails_unexpectedly_raises_and_does_not_wait(
    aclient: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncConnection, "error_of", unexpected)
    async with aclient.subscribe("orders", group="g", idle_s=IDLE_S) as messages:
        with pytest.raises(RuntimeError, match="unexpected"):
            await anext(messages)


def test_a_consumer_whose_pull_cannot_be_sent_raises_and_does_not_wait(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = client.consume("orders", queues=[0])
    monkeypatch.setattr(client.channels, "stub", unexpected)
    with pytest.raises(RuntimeError, match="unexpected"):
        next(consumer)
