"""The asyncio client: the same surface, and its own I/O."""

from __future__ import annotations

import asyncio
import inspect
import time
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from fake_penstock import FakePenstock, rich_status

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
    DataLoss,
    DeadlineExceeded,
    DeliveryFailed,
    Handle,
    InvalidArgument,
    KeyRecords,
    MessageNotFound,
    PenstockError,
    Producer,
    RecordBatch,
    ResourceExhausted,
    StagedCommit,
    TopicExists,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
)
from penstock.consuming.in_flight import Answered, AsyncInFlightCalls
from penstock.v1 import common_pb2

UNAVAILABLE = rich_status(grpc.StatusCode.UNAVAILABLE, "away")
PATIENCE_S = (0.3, 1.0, 3.0, 10.0)  # a busy machine may need the longer ones to be answered at all
BUSY = rich_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", retry_delay_ms=5)


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
    """What users call of a class: for each public name its parameters, None of a property."""
    methods = {
        name: [(each.name, each.kind, each.default) for each in signature.parameters.values()]
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and (signature := inspect.signature(method))
    }
    properties = inspect.getmembers(kind, lambda member: isinstance(member, property))
    return methods | {name: None for name, _ in properties}


async def test_what_is_produced_can_be_pulled(aclient: AsyncClient) -> None:
    """Alone, as a batch, and by id."""
    stored = await aclient.produce("orders", b"pen", keys=["k"], tag="t", queue_id=1)
    batch = RecordBatch("orders", queue_id=1)
    batch.add(b"ink", keys=["k"])
    assert (await aclient.produce_batch(batch)).record_count == 1

    result = await aclient.pull("orders", 1, 0)

    assert [record.body for record in result.records] == [b"pen", b"ink"]
    assert (await aclient.message(stored.message_id)).body == b"pen"
    assert [r.body async for r in aclient.query_by_key("orders", "k", page_size=1)] == [
        b"ink",
        b"pen",
    ]
    with pytest.raises(MessageNotFound):
        await aclient.message(10**9)


async def test_topics_offsets_and_states(aclient: AsyncClient) -> None:
    """Every administrative call answers."""
    await aclient.wait_ready(5)
    await aclient.create_topic("t", queues=2)
    with pytest.raises(TopicExists):
        await aclient.create_topic("t")
    assert (await aclient.update_topic("t", queues=3)).write_queue_count == 3
    assert len((await aclient.describe_topic("t")).queues) == 3
    assert [topic.name for topic in await aclient.topics()] == ["orders", "t"]
    await aclient.delete_topic("t")
    with pytest.raises(TopicNotFound):
        await aclient.describe_topic("t")
    await aclient.commit_offset("g", "orders", 0, 2)
    assert [o.queue_offset for o in await aclient.offsets("g")] == [2]
    assert await aclient.groups() == ["g"]
    assert (await aclient.offset("orders", 0)).queue_offset == 0
    assert (await aclient.writer_status()).writable
    assert (await aclient.reader_status()).writer_alive
    assert (await aclient.indexer_status()).indexed_offset == 0
    assert (await aclient.wait_indexed(0)).indexed_offset == 0


async def test_wait_ready_names_the_service_that_does_not_serve(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    """By its own health check."""
    fake.health.set("penstock.v1.Indexer", 2)

    with pytest.raises(Unavailable, match="indexer"):
        await aclient.wait_ready(0.2)


async def test_retries_are_those_of_the_synchronous_client(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    """A pull is repeated, and a produce, which is stored once."""
    fake.store.fail_next("Pull", UNAVAILABLE, times=2)
    await aclient.pull("orders", 0, 0)
    assert fake.store.calls["Pull"] == 3

    fake.store.answers_lost["Produce"] = fake.store.answers_lost["ProduceBatch"] = 1
    assert (await aclient.produce("orders", b"x", queue_id=0)).repeated
    assert fake.store.calls["Produce"] == 2
    batch = RecordBatch("orders", queue_id=1)
    batch.add(b"z")
    assert (await aclient.produce_batch(batch)).repeated
    assert not (await aclient.produce_batch(batch)).repeated

    fake.store.fail_next("Produce", BUSY, times=2)
    await aclient.produce("orders", b"y", queue_id=0)
    assert fake.store.bodies("orders", 0) == [b"x", b"y"]


async def test_a_closed_client_says_so(fake: FakePenstock) -> None:
    """No call goes out any more."""
    client = AsyncClient(**fake.addresses)
    await client.topics()
    await client.close()

    with pytest.raises(ClientClosed):
        await client.topics()


async def test_handles_are_awaited(aclient: AsyncClient, fake: FakePenstock) -> None:
    """Before and after the outcome is there; order in each queue is that of sending."""
    async with aclient.producer(batch_bytes=400, linger_ms=1) as producer:
        handles = [await producer.send("orders", b"%d" % n, queue_id=n % 4) for n in range(100)]
        assert (await handles[99]).queue_offset == 24

    assert [(await handle).queue_offset for handle in handles] == [n // 4 for n in range(100)]
    for queue_id in range(4):
        assert fake.store.bodies("orders", queue_id) == [b"%d" % n for n in range(queue_id, 100, 4)]


async def test_waiting_for_an_outcome_can_be_bounded(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    """The message is on its way all the same, and its outcome is there later."""
    fake.store.answers_wait.clear()
    async with aclient.producer(linger_ms=0) as producer:
        handle = await producer.send("orders", b"pen", queue_id=0)
        with pytest.raises(DeadlineExceeded):
            await handle.result(timeout_s=0.05)
        with pytest.raises(DeadlineExceeded):
            await producer.flush(timeout_s=0.05)
        assert not handle.done
        fake.store.answers_wait.set()
        await producer.flush(timeout_s=30)

        assert (await handle.result(timeout_s=0)).queue_offset == 0
        assert await handle.exception() is None


async def test_send_waits_at_the_bound(aclient: AsyncClient, fake: FakePenstock) -> None:
    """The writer withholds its answers: at most three frames go out, and sending stops."""
    fake.store.answers_wait.clear()
    body = b"x" * (10 << 10)
    sent = []

    async def send() -> None:
        async with aclient.producer(max_in_flight=3, linger_ms=0) as producer:
            for n in range(600):
                sent.append(await producer.send("orders", body, queue_id=n % 4))  # noqa: PERF401  grows while the test looks

    task = asyncio.create_task(send())
    until = time.monotonic() + 30
    while fake.store.frames_unanswered_max < 3:
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    held = len(sent)
    assert not task.done()
    fake.store.answers_wait.set()
    await asyncio.wait_for(task, 60)

    assert held <= 30
    assert fake.store.frames_unanswered_max == 3
    assert len(fake.store.log) == 600


async def test_refused_frames_are_sent_again_in_order(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    """Every third frame is refused; nothing is lost, doubled or overtaken."""
    busy = common_pb2.Failure(code=8, message="busy", retry_delay_ms=10, record_index=-1)
    fake.store.frame_faults.extend([None, None, busy] * 20)
    async with aclient.producer(batch_bytes=300, linger_ms=0) as producer:
        for n in range(200):
            await producer.send("orders", b"%03d" % n, queue_id=n % 4)
            if n % 10 == 0:
                await asyncio.sleep(0.002)

    for queue_id in range(4):
        expected = [b"%03d" % n for n in range(200) if n % 4 == queue_id]
        assert fake.store.bodies("orders", queue_id) == expected


async def test_what_a_broken_stream_left_open_is_sent_again_and_stored_once(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    fake.store.stream_breaks.append(2)
    async with aclient.producer(batch_bytes=1, linger_ms=0, max_in_flight=1) as producer:
        assert (await (await producer.send("orders", b"a", queue_id=0))).queue_offset == 0
        second = await producer.send("orders", b"b", queue_id=0)
        third = await producer.send("orders", b"c", queue_id=1)
        assert ((await second).queue_offset, (await second).repeated) == (1, True)
        assert ((await third).queue_offset, (await third).repeated) == (0, False)
    assert fake.store.bodies("orders", 0) == [b"a", b"b"]
    assert fake.store.bodies("orders", 1) == [b"c"]


async def test_a_frame_that_stays_refused_fails(aclient: AsyncClient, fake: FakePenstock) -> None:
    """After the delivery timeout the handle raises what the writer said."""
    busy = common_pb2.Failure(code=8, message="busy", retry_delay_ms=10, record_index=-1)
    fake.store.frame_faults.extend([busy] * 1000)
    for delivery_timeout_s in PATIENCE_S:
        producer = aclient.producer(delivery_timeout_s=delivery_timeout_s, linger_ms=0)
        handle = await producer.send("orders", b"x", queue_id=0)
        outcome = await outcome_of(handle)
        with pytest.raises(DeliveryFailed):
            await producer.close()
        if not isinstance(outcome, UnknownOutcome | Unavailable):
            break

    with pytest.raises(ResourceExhausted):
        await handle


async def test_a_writer_that_stops_answering_is_given_up(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    """Nothing waits for ever, and the outcome is unknown."""
    for delivery_timeout_s in PATIENCE_S[1:]:
        fake.store.answers_wait.set()
        producer = aclient.producer(delivery_timeout_s=delivery_timeout_s, linger_ms=0)
        answered = await outcome_of(await producer.send("orders", b"answered", queue_id=0))
        fake.store.answers_wait.clear()
        handle = await producer.send("orders", b"x", queue_id=0)
        outcome = await outcome_of(handle)
        with pytest.raises(DeliveryFailed):
            await producer.close()
        if not isinstance(answered, PenstockError) and not isinstance(outcome, Unavailable):
            break

    assert isinstance(outcome, UnknownOutcome)


async def handle_of(handle: object) -> object:
    return await handle  # type: ignore[misc]


async def outcome_of(handle: object) -> object:
    """What it is in the end: where the message is stored, or the error."""
    (outcome,) = await asyncio.gather(
        asyncio.wait_for(handle_of(handle), 30), return_exceptions=True
    )
    return outcome


async def test_messages_wait_for_a_writer_that_is_away(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    """What was never sent is sent when the writer is back."""
    fake.stop()
    producer = aclient.producer(linger_ms=0)
    handle = await producer.send("orders", b"x", queue_id=0)
    fake.start()

    assert (await asyncio.wait_for(handle_of(handle), 30)).queue_offset == 0  # type: ignore[attr-defined]
    await producer.close()


async def test_a_bad_message_is_refused_at_send(aclient: AsyncClient) -> None:
    """And a closed producer takes nothing."""
    producer = aclient.producer()
    with pytest.raises(InvalidArgument):
        await producer.send("orders", b"x", tag="a|b", queue_id=0)
    with pytest.raises(TopicNotFound):
        await producer.send("nowhere", b"x")
    await producer.close()
    with pytest.raises(ClientClosed):
        await producer.send("orders", b"x", queue_id=0)


async def test_a_group_goes_on_where_it_stopped(aclient: AsyncClient) -> None:
    """Over all queues, nothing twice and nothing left out."""
    for n in range(20):
        await aclient.produce("orders", b"%d" % n, queue_id=n % 4)
    seen = []
    async with aclient.consume("orders", group="g", follow=False) as consumer:
        async for record in consumer:
            seen.append(record.body)
            if len(seen) == 7:
                await consumer.commit()
                break

    rest = [r.body async for r in aclient.consume("orders", group="g", follow=False)]

    assert len(seen) + len(rest) == 20
    assert set(seen).isdisjoint(rest)


async def test_a_consumer_learns_that_its_client_was_closed(aclient: AsyncClient) -> None:
    """While a long pull is under way; it used to wait on until its next commit."""
    consumer = aclient.consume("orders", queues=[0], auto_commit=False)
    waiting = asyncio.create_task(anext(consumer))
    await asyncio.sleep(0.2)
    await aclient.close()

    with pytest.raises(ClientClosed):
        await asyncio.wait_for(waiting, 10)


async def test_following_gives_records_as_they_come(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    """By long polls, and without loss through a restart of the reader."""
    consumer = aclient.consume("orders", queues=[0, 1])
    first = asyncio.create_task(anext(consumer))
    await asyncio.sleep(0.05)
    await aclient.produce("orders", b"a", queue_id=1)
    assert (await asyncio.wait_for(first, 30)).body == b"a"
    await asyncio.to_thread(fake.stop)
    fake.start()
    await aclient.wait_ready(30)
    await aclient.produce("orders", b"b", queue_id=0)

    assert (await asyncio.wait_for(anext(consumer), 30)).body == b"b"
    await consumer.close()
    with pytest.raises(ClientClosed):
        await anext(consumer)


async def test_a_damaged_record_is_raised_and_can_be_gone_past(
    aclient: AsyncClient, fake: FakePenstock
) -> None:
    """As in the synchronous consumer."""
    for n in range(3):
        await aclient.produce("orders", b"%d" % n, queue_id=0)
    fake.store.damaged["orders", 0, 1] = "magic"
    consumer = aclient.consume("orders", queues=[0], follow=False)
    assert (await anext(consumer)).body == b"0"

    with pytest.raises(DataLoss) as caught:
        await anext(consumer)

    assert caught.value.next_offset == 2
    assert [record.body async for record in consumer] == [b"2"]


async def test_a_call_whose_channel_is_closed_before_it_begins_is_of_a_closed_client() -> None:
    """Its consumer would wait for its answer for ever."""
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    channels: Any = SimpleNamespace(stub=channel.unary_unary)
    call: Any = SimpleNamespace(method="/s/m", request=b"")
    answers: list[Answered] = []
    calls = AsyncInFlightCalls(channels, answers.append)
    calls.start("purpose", call, 5)
    await channel.close(None)
    await calls.wait(20)

    assert [type(answered.outcome) for answered in answers] == [ClientClosed]
