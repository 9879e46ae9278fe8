"""Code of a user, which passes a strict type check in `make check`; it is not run."""

from __future__ import annotations

from datetime import datetime

from penstock import (
    AsyncClient,
    Client,
    Damage,
    Message,
    PenstockError,
    PullStatus,
    Record,
    RecordBatch,
    RetryPolicy,
    Stored,
    StoredBatch,
    Topic,
    UnknownOutcome,
)


def on_damaged(topic: str, queue_id: int, damage: Damage) -> None:
    reason: str = damage.reason
    print(topic, queue_id, reason)


def synchronous() -> None:
    with Client(writer="127.0.0.1:5801", retry=RetryPolicy(delay_ms_max=500)) as client:
        client.wait_ready(5, services=["writer", "reader"])
        stored: Stored = client.produce("t", b"x", keys=["k"], tag="a", properties={"p": "v"})
        many: list[Stored] = client.produce_many([Message(topic="t", body=b"x")])
        batch = RecordBatch("t")
        count: int = batch.add_many([b"a"], keys=[["k"]], tags="t")
        placed: StoredBatch = client.produce_batch(batch)
        with client.producer(max_in_flight=8) as producer:
            handle = producer.send("t", b"x", queue_id=0)
            offset: int = handle.result(1.0).queue_offset
            failure: PenstockError | None = handle.exception()
        topics: list[Topic] = client.topics()
        print(
            topics,
            client.describe_topic("t", timeout_s=1).queues,
            client.resend_dead_letters("g") + 1,
        )
        result = client.pull("t", 0, 0, wait_ms=100)
        if result.status is PullStatus.FOUND:
            record: Record = result.records[0]
            records: list[Record] = result.records[1:]
            body: bytes = record.body
            print(body, records)
        for each in client.consume("t", group="g", start=datetime(2024, 1, 1), follow=False):
            tag: str = each.tag
            print(tag)
        for each in client.query_by_key("t", "k", begin=0, on_damaged=on_damaged):
            print(each.keys)
        print(stored, many, count, placed, offset, failure)


async def asynchronous() -> None:
    async with AsyncClient() as client:
        try:
            stored: Stored = await client.produce("t", b"x")
        except UnknownOutcome as error:
            index: int = error.record_index
            print(index)
        else:
            count: int = await client.resend_dead_letters("g", most=1)
            print(stored, count)
        async with client.producer() as producer:
            handle = await producer.send("t", b"x")
            placed: Stored = await handle
        async with client.consume("t", group="g") as consumer:
            async for record in consumer:
                print(record.body, placed)
                await consumer.commit()
