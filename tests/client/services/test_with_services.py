"""Both clients against the real writer, reader and indexer, in this process."""

from __future__ import annotations

import pytest

from penstock import (
    AsyncClient,
    Client,
    RecordBatch,
    TopicNotFound,
)
from penstock.values import Message


def test_a_message_comes_back_by_pull_key_and_id(client: Client, topic: str) -> None:
    """With all of its fields, and by each way the same record."""
    stored = client.produce(
        topic,
        b"pen",
        keys=["k1", "k2"],
        tag="new",
        properties={"colour": "gr\u00fcn"},
        queue_id=2,
        unique_key="unique-1",
        flag=5,
    )
    client.wait_indexed(stored.commit_offset + 1)

    [pulled] = client.pull(topic, 2, 0, wait_ms=5000).records
    [by_key] = client.query_by_key(topic, "k2")
    [by_unique] = client.query_by_key(topic, "unique-1", unique=True)
    by_id = client.message(stored.message_id)
    by_commit_offset = client.message(stored.commit_offset)

    for record in (pulled, by_key, by_unique, by_id, by_commit_offset):
        assert (record.topic, record.queue_id, record.queue_offset) == (topic, 2, 0)
        assert (record.body, record.keys, record.tag) == (b"pen", ("k1", "k2"), "new")
        assert record.properties["colour"] == "gr\u00fcn"
        assert (record.unique_key, record.flag) == ("unique-1", 5)
        assert record.message_id == stored.message_id
        assert record.commit_offset == stored.commit_offset
        assert record.store_timestamp_ms == stored.store_timestamp_ms
        assert record.store_host == pulled.store_host
        assert record.born_host == pulled.born_host
        host, _, port = record.born_host.rpartition(":")  # ours, as the writer sees it
        assert host == "127.0.0.1"
        assert int(port) > 1023
        assert dict(record.properties) == dict(pulled.properties)


def test_a_batch_is_stored_whole_and_found(client: Client, topic: str) -> None:
    """Ranges have the queue offsets; keys of batched records are indexed."""
    batch = RecordBatch(topic)
    for n in range(100):
        batch.add(b"%d" % n, keys=[f"k{n}"], tag="even" if n % 2 == 0 else "odd", queue_id=n % 4)
    stored = client.produce_batch(batch)
    client.wait_indexed(stored.end_commit_offset)

    assert stored.record_count == 100
    assert {(r.queue_id, r.first_queue_offset, r.count) for r in stored.ranges} == {
        (q, 0, 25) for q in range(4)
    }
    bodies = sorted(int(r.body) for r in client.consume(topic, follow=False))
    assert bodies == list(range(100))
    assert [r.body for r in client.query_by_key(topic, "k42")] == [b"42"]
    even = client.consume(topic, tag="even", follow=False)
    assert sorted(int(r.body) for r in even) == list(range(0, 100, 2))


def test_a_producer_s_handles_are_true(client: Client, topic: str) -> None:
    """Queue offset and commit offset of every message lead to that message."""
    with client.producer(batch_bytes=4000, linger_ms=1) as producer:
        handles = [(n, producer.send(topic, b"%d" % n, keys=[f"k{n}"])) for n in range(2000)]

    by_place = {(r.queue_id, r.queue_offset): r for r in client.consume(topic, follow=False)}
    assert len(by_place) == 2000
    for n, handle in handles:
        stored = handle.result()
        record = by_place[stored.queue_id, stored.queue_offset]
        assert record.body == b"%d" % n
        assert record.commit_offset == stored.commit_offset
    assert client.message(handles[1234][1].result().commit_offset).body == b"1234"


def test_a_producer_keeps_the_order_of_each_queue(client: Client, topic: str) -> None:
    with client.producer(batch_bytes=500, linger_ms=0) as producer:
        for n in range(1000):
            producer.send(topic, b"%d" % n, queue_id=n % 4)

    for queue_id in range(4):
        records = client.consume(topic, queues=[queue_id], follow=False)
        assert [int(r.body) for r in records] == list(range(queue_id, 1000, 4))


def test_a_stream_of_pulls_catches_up(client: Client, topic: str) -> None:
    """All records in order, over several responses, then the end; an unknown topic is reported."""
    batch = RecordBatch(topic, queue_id=1)
    batch.add_many([b"%d" % n for n in range(3000)])
    client.produce_batch(batch)

    results = list(client.pull_stream(topic, 1, 10, max_bytes=32 << 10))

    assert [int(r.body) for each in results for r in each.records] == list(range(10, 3000))
    assert results[-1].next_offset == 3000
    assert len(results) > 5
    with pytest.raises(TopicNotFound):
        list(client.pull_stream("nowhere", 0, 0))


def test_a_group_resumes(client: Client, topic: str) -> None:
    """What one consumer committed, the next one does not see; nothing is left out."""
    client.produce_many([Message(topic=topic, body=b"%d" % n, queue_id=n % 4) for n in range(40)])
    seen = []
    with client.consume(topic, group="billing", follow=False) as consumer:
        for record in consumer:
            seen.append(record.body)
            if len(seen) == 13:
                consumer.commit()
                break
    rest = [record.body for record in client.consume(topic, group="billing", follow=False)]

    assert len(seen) + len(rest) == 40
    assert set(seen).isdisjoint(rest)
    assert {o.queue_id: o.lag for o in client.offsets("billing", topic)} == dict.fromkeys(
        range(4), 0
    )
    assert "billing" in client.groups()


async def test_asyncio_reads_what_asyncio_writes(
    aclient: AsyncClient, client: Client, topic: str
) -> None:
    """Unary, batch, stream; pull, follow, query and message."""
    stored = await aclient.produce(topic, b"first", keys=["k"], queue_id=0)
    batch = RecordBatch(topic)
    batch.add_many([b"second", b"third"], keys=[["k"], ["k"]])
    end = (await aclient.produce_batch(batch)).end_commit_offset
    async with aclient.producer() as producer:
        handles = [await producer.send(topic, b"%d" % n, queue_id=1) for n in range(500)]
    assert [(await handle).queue_offset for handle in handles] == list(range(500))
    await aclient.wait_indexed(end)

    assert (await aclient.message(stored.message_id)).body == b"first"
    assert [r.body async for r in aclient.query_by_key(topic, "k", page_size=2)] == [
        b"third",
        b"second",
        b"first",
    ]
    bodies = [r.body async for r in aclient.consume(topic, group="async", follow=False)]
    assert len(bodies) == 503
    assert [r async for r in aclient.consume(topic, group="async", follow=False)] == []
    streamed = [r.body async for each in aclient.pull_stream(topic, 1, 0) for r in each.records]
    assert len(streamed) == 500
    async with aclient.consume(topic, queues=[2]) as consumer:
        await aclient.produce(topic, b"late", queue_id=2)
        assert (await anext(consumer)).body == b"late"
