"""The asyncio client: the same surface, and its own waiting."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from faulty_penstock import FaultyPenstock

from penstock import (
    AsyncClient,
    AsyncConsumer,
    AsyncHandle,
    AsyncKeyRecords,
    AsyncProducer,
    AsyncStagedCommit,
    Client,
    ClientClosed,
    Consumer,
    DeadlineExceeded,
    DeliveryFailed,
    Handle,
    KeyRecords,
    Producer,
    StagedCommit,
    UnknownOutcome,
)


@pytest.mark.parametrize(
    ("sync", "asynchronous"),
    [
        (Client, AsyncClient),
        (Producer, AsyncProducer),
        (Handle, AsyncHandle),
        (Consumer, AsyncConsumer),
        (KeyRecords, AsyncKeyRecords),
        (StagedCommit, AsyncStagedCommit),
    ],
)
def test_both_clients_have_the_same_methods_with_the_same_arguments(
    sync: type, asynchronous: type
) -> None:
    """Names, kinds and defaults; and the same properties."""
    assert surface(asynchronous) == surface(sync)


def surface(kind: type) -> dict[str, list[tuple[str, object, object]] | None]:
    """What users call of a class: for each public name its parameters, None of a property.

    Only what is asynchronous has ``aclose``, as asynchronous generators do.
    """
    methods = {
        name: [(each.name, each.kind, each.default) for each in signature.parameters.values()]
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and name != "aclose"
        and (signature := inspect.signature(method))
    }
    properties = inspect.getmembers(kind, lambda member: isinstance(member, property))
    return methods | {name: None for name, _ in properties}


async def test_waiting_for_an_outcome_can_be_bounded(
    aclient: AsyncClient, faulty: FaultyPenstock
) -> None:
    """The message is on its way all the same, and its outcome is there later."""
    faulty.answers_wait.clear()
    async with aclient.producer(linger_ms=0) as producer:
        handle = await producer.send("orders", b"pen", queue_id=0)
        with pytest.raises(DeadlineExceeded):
            await handle.result(timeout_s=0.05)
        with pytest.raises(DeadlineExceeded):
            await producer.flush(timeout_s=0.05)
        assert not handle.done
        faulty.answers_wait.set()
        await producer.flush(timeout_s=30)

        assert (await handle.result(timeout_s=0)).queue_offset == 0
        assert await handle.exception() is None


async def test_send_waits_at_the_bound(aclient: AsyncClient, faulty: FaultyPenstock) -> None:
    """The writer withholds its answers: at most three batches go out, and sending stops."""
    faulty.answers_wait.clear()
    body = b"x" * (10 << 10)
    sent = []

    async def send() -> None:
        async with aclient.producer(max_in_flight=3, linger_ms=0) as producer:
            for n in range(600):
                sent.append(await producer.send("orders", body, queue_id=n % 4))  # noqa: PERF401  grows while the test looks

    task = asyncio.create_task(send())
    async with asyncio.timeout(30):
        while faulty.batches_unanswered_max < 3:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    held = len(sent)
    assert not task.done()
    faulty.answers_wait.set()
    await asyncio.wait_for(task, 60)

    assert held <= 30
    assert faulty.batches_unanswered_max == 3
    assert faulty.stored_count() == 600


async def test_what_a_closed_client_leaves_undone_is_raised_at_the_close(
    aclient: AsyncClient, faulty: FaultyPenstock
) -> None:
    producer = aclient.producer(linger_ms=0)
    await (await producer.send("orders", b"a", queue_id=0))
    faulty.answers_wait.clear()
    handle = await producer.send("orders", b"b", queue_id=0)
    await aclient.close()
    faulty.answers_wait.set()

    assert isinstance(await handle.exception(), UnknownOutcome)
    with pytest.raises(DeliveryFailed):
        await producer.close()


async def test_a_consumer_learns_that_its_client_was_closed(aclient: AsyncClient) -> None:
    """While a long pull is under way; it used to wait on until its next commit."""
    consumer = aclient.consume("orders", queues=[0], auto_commit=False)
    waiting = asyncio.create_task(anext(consumer))
    await asyncio.sleep(0.2)
    await aclient.close()

    with pytest.raises(ClientClosed):
        await asyncio.wait_for(waiting, 10)
