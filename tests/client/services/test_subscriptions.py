"""Subscriptions against the real services: each message settled once, handed out again where it was not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from itertools import islice

import grpc
import pytest
from real_processes import until

from penstock import (
    AsyncClient,
    Client,
    InvalidArgument,
    LeasedRecord,
    Subscription,
    TopicNotFound,
)
from penstock.client.receiver import Receiver
from penstock.consuming.in_flight import Answered
from penstock.values import Message

GROUP = "billing"


def is_dispatched(client: Client) -> bool:
    """Return whether a receive finds all that was stored, not the first of it alone."""
    status = client.writer_status()
    return status.dispatched_offset >= status.appended_offset


def produce(client: Client, topic: str, count: int) -> list[bytes]:
    bodies = [b"%d" % n for n in range(count)]
    client.produce_many([Message(topic=topic, body=body) for body in bodies])
    until(lambda: is_dispatched(client))
    return bodies


def lag(client: Client, topic: str, *, group: str = GROUP) -> int:
    return sum(each.lag for each in client.describe_group(group, topic).queues)


def test_what_is_iterated_over_is_acknowledged(client: Client, topic: str) -> None:
    """Each message once, over all queues; afterwards the group has nothing to go."""
    bodies = produce(client, topic, 100)

    with client.subscribe(topic, group=GROUP) as messages:
        seen = [(message.body, message.attempt) for message in islice(messages, 100)]

    assert sorted(seen) == sorted((body, 1) for body in bodies)
    assert lag(client, topic) == 0


def test_what_an_exception_interrupts_comes_again(client: Client, topic: str) -> None:
    """It alone is handed out again, as the second attempt, after the group's first backoff."""
    produce(client, topic, 3)
    client.update_group(GROUP, backoff=[100]) if GROUP in names(client) else client.create_group(
        GROUP, backoff=[100]
    )
    failed = b""
    with (
        pytest.raises(ZeroDivisionError),
        client.subscribe(topic, group=GROUP) as messages,
    ):
        next(messages)
        failed = next(messages).body
        raise ZeroDivisionError

    with client.subscribe(topic, group=GROUP) as messages:
        again = {message.body: message.attempt for message in islice(messages, 2)}

    assert failed in again
    assert again[failed] == 2
    assert len(again) == 2
    assert lag(client, topic) == 0


def names(client: Client) -> set[str]:
    return {group.name for group in client.group_settings()}


def test_a_subscription_ends_after_so_long_without_a_message(client: Client, topic: str) -> None:
    produce(client, topic, 1)
    began = time.monotonic()
    with client.subscribe(topic, group=GROUP, idle_s=0.5) as messages:
        for _ in messages:
            pass
    assert time.monotonic() - began >= 0.5


def test_members_share_and_none_gets_what_another_has(client: Client, topic: str) -> None:
    bodies = produce(client, topic, 400)
    seen: list[bytes] = []
    subscriptions = [client.subscribe(topic, group=GROUP, prefetch=20) for _ in range(3)]

    def member(subscription: Subscription) -> None:
        with subscription as messages:
            for message in messages:
                seen.append(message.body)
                if len(seen) >= len(bodies):
                    for each in subscriptions:
                        each.stop()
                time.sleep(0.001)

    members = [threading.Thread(target=member, args=(each,)) for each in subscriptions]
    for each in members:
        each.start()
    for each in members:
        each.join()

    assert Counter(seen) == Counter(bodies)
    assert lag(client, topic) == 0


def test_a_slow_handler_keeps_its_lease(client: Client, topic: str) -> None:
    """Three times as long as the lease, and nobody else gets the message."""
    produce(client, topic, 1)

    with client.subscribe(topic, group=GROUP, lease_ms=1_500) as messages:
        assert next(messages).attempt == 1
        other = client.receive(topic, group=GROUP, wait_ms=4_500)
        assert len(other.records) == 0

    assert lag(client, topic) == 0


def test_a_member_that_is_dropped_gives_back_what_it_has(client: Client, topic: str) -> None:
    """Without being closed, and long before its leases end."""
    produce(client, topic, 10)
    messages = client.subscribe(topic, group=GROUP, lease_ms=600_000)
    first = next(messages)
    first.ack()
    del messages, first

    with client.subscribe(topic, group=GROUP) as others:
        seen = [next(others) for _ in range(9)]

    assert {message.attempt for message in seen} == {2}


def test_a_handler_settles_many_at_once_and_its_failures_come_again(
    client: Client, topic: str
) -> None:
    bodies = produce(client, topic, 50)
    done: list[bytes] = []
    running = Counter[str]()
    most = 0

    def handle(message: LeasedRecord) -> None:
        nonlocal most
        running["now"] += 1
        most = max(most, running["now"])
        time.sleep(0.01)
        running["now"] -= 1
        if message.body == b"7" and message.attempt == 1:
            message.nack(delay_ms=50)
            return
        done.append(message.body)
        if len(done) >= len(bodies):
            subscription.stop()
        if message.body == b"8" and message.attempt == 1:
            message.dead_letter()
            raise ValueError("settled before")

    subscription = client.subscribe(topic, group=GROUP)
    subscription.run(handle, concurrency=4)

    assert Counter(done) == Counter(bodies)
    assert lag(client, topic) == 0
    assert 1 < most <= 4
    dead = [record.body for record in client.consume(f"%DLQ%{GROUP}", follow=False)]
    assert b"8" in dead


def test_the_last_attempt_makes_a_dead_letter(client: Client, topic: str) -> None:
    client.create_group("strict", retry_max_times=1, backoff=[10])
    produce(client, topic, 1)
    attempts = []

    def handle(message: LeasedRecord) -> None:
        attempts.append(message.attempt)
        if len(attempts) == 2:
            threading.Thread(target=stop_when_done).start()
        raise ValueError("never works")

    def stop_when_done() -> None:
        while sum(each.lag for each in client.describe_group("strict", topic).queues):
            time.sleep(0.01)
        subscription.stop()

    subscription = client.subscribe(topic, group="strict")
    subscription.run(handle)

    assert attempts == [1, 2]
    (dead,) = client.consume("%DLQ%strict", follow=False)
    assert dead.body == b"0"


def test_stop_ends_a_run_from_another_thread(client: Client, topic: str) -> None:
    produce(client, topic, 1)
    subscription = client.subscribe(topic, group=GROUP)
    handled = threading.Event()
    thread = threading.Thread(target=subscription.run, args=(lambda _: handled.set(),))
    thread.start()
    assert handled.wait(60)
    subscription.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_filters_by_tag_and_by_properties(client: Client, topic: str) -> None:
    client.produce(topic, b"red", tag="red", properties={"size": "3"})
    client.produce(topic, b"blue", tag="blue", properties={"size": "9"})
    until(lambda: is_dispatched(client))

    for group, body, expression in (
        ("by-tag", b"blue", {"tag": "blue"}),
        ("by-sql", b"red", {"sql": "size < 5"}),
    ):
        with client.subscribe(topic, group=group, **expression) as messages:
            assert next(messages).body == body
        assert lag(client, topic, group=group) == 0
    with (
        client.subscribe(topic, group="by-sql", sql="size <", idle_s=0.3) as messages,
        pytest.raises(InvalidArgument, match="ends at character 7"),
    ):
        next(messages)


def test_what_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(TopicNotFound), client.subscribe("none", group=GROUP) as messages:
        next(messages)
    with pytest.raises(InvalidArgument, match="group"):
        client.subscribe("none", group="")


def test_batches_are_received_and_acknowledged_by_hand(client: Client, topic: str) -> None:
    produce(client, topic, 40)

    received = client.receive(topic, group=GROUP, max_messages=32, lease_ms=10_000)
    assert len(received.records) == len(received.attempts) == 32
    assert client.acknowledge(received) == []
    refused = client.acknowledge(received)
    assert {each.problem for each in refused} == {"ACKNOWLEDGED"}
    assert len(refused) == 32

    rest = client.receive(topic, group=GROUP, lease_ms=10_000)
    assert len(rest.records) == 8
    assert client.change_leases(rest, 0, rest.handle(3)) == []
    (again,) = client.receive(topic, group=GROUP, wait_ms=25_000).records
    assert again.body == rest.records[3].body


def test_what_a_lost_answer_leased_comes_again_while_the_member_lives(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leases are not renewed with those of the messages that came."""
    bodies = produce(client, topic, 3)
    lost: list[object] = []

    class Lost(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.UNAVAILABLE

        def details(self) -> str:
            return "the connection was reset"

        def trailing_metadata(self) -> tuple[()]:
            return ()

    take = Receiver._take

    def lose_the_first(receiver: Receiver, answered: Answered) -> None:
        if not lost and not isinstance(answered.outcome, Exception):
            lost.append(answered.outcome)
            answered = answered._replace(outcome=Lost())
        take(receiver, answered)

    monkeypatch.setattr(Receiver, "_take", lose_the_first)
    with client.subscribe(topic, group=GROUP, lease_ms=600_000) as messages:
        seen = [(next(messages)) for _ in range(3)]

    assert lost
    assert sorted(message.body for message in seen) == sorted(bodies)
    assert {message.attempt for message in seen} == {2}


def test_a_delay_that_is_no_number_is_refused_at_once(client: Client, topic: str) -> None:
    produce(client, topic, 1)
    with client.subscribe(topic, group=GROUP) as messages:
        message = next(messages)
        for wrong in (-1, 1.5, "1s"):
            with pytest.raises(InvalidArgument, match="delay_ms"):
                message.nack(delay_ms=wrong)  # type: ignore[arg-type]
    for field in ("prefetch", "lease_ms"):
        with pytest.raises(InvalidArgument, match=field):
            client.subscribe(topic, group=GROUP, **{field: 0})  # type: ignore[arg-type]


def test_batches_are_acknowledged_but_for_what_was_settled(client: Client, topic: str) -> None:
    """One message of a batch given back, one made a dead letter; a batch that an exception interrupts."""
    bodies = produce(client, topic, 100)
    seen: list[bytes] = []
    attempts: Counter[int] = Counter()

    with client.subscribe(topic, group="batches", prefetch=40) as messages:
        for batch in messages.batches(7):
            assert 1 <= len(batch) <= 7
            assert len(batch.receipt_handles) % len(batch) == 0
            seen += [record.body for record in batch.records]
            for message in batch:
                attempts[message.attempt] += 1
                if message.body == b"3" and message.attempt == 1:
                    message.nack(delay_ms=10)
                if message.body == b"4":
                    message.dead_letter()
            if len(seen) > len(bodies):
                break

    assert Counter(seen) == Counter([*bodies, b"3"])
    assert attempts == {1: 100, 2: 1}
    assert lag(client, topic, group="batches") == 0
    assert b"4" in [record.body for record in client.consume("%DLQ%batches", follow=False)]


def test_a_batch_that_an_exception_interrupts_is_given_back(client: Client, topic: str) -> None:
    """By the group's backoff, which the reader knows, and no handle of it is good any more."""
    client.create_group("interrupted", backoff=[100])
    produce(client, topic, 12)
    with (
        pytest.raises(ZeroDivisionError),
        client.subscribe(topic, group="interrupted") as messages,
    ):
        first = next(messages.batches(5))
        failed = [message.body for message in first]
        raise ZeroDivisionError

    with client.subscribe(topic, group="interrupted") as messages:
        again = {message.body: message.attempt for message in islice(messages, 12)}

    assert len(again) == 12
    assert {again[body] for body in failed} == {2}


def test_what_waits_here_is_bounded_by_bytes(client: Client, topic: str) -> None:
    """Of 64 messages of 10 KB a member holds few, and another one gets most of them."""
    client.create_group("bytes")
    client.produce_many([Message(topic=topic, body=b"x" * 10_000)] * 64)
    until(lambda: lag(client, topic, group="bytes") == 64)
    with client.subscribe(
        topic, group="bytes", prefetch_bytes=40_000, lease_ms=600_000
    ) as messages:
        next(messages)
        other = client.receive(topic, group="bytes", max_messages=64)
        assert len(other.records) >= 50


def test_nothing_is_stored_of_what_members_do(client: Client, topic: str) -> None:
    """Not a record of a lease, of a longer one, of a message given back or acknowledged: a dead letter alone."""
    client.create_group("silent", retry_max_times=1, backoff=[10])
    produce(client, topic, 20)
    until(lambda: lag(client, topic, group="silent") == 20)
    end = client.writer_status().appended_offset
    received = client.receive(topic, group="silent", max_messages=20)
    assert client.change_leases(received, 60_000) == []
    done, failed = received.receipt_handles, received.receipt_handles[: received.handle_width]
    assert client.acknowledge(received, handles=done[received.handle_width :]) == []
    assert client.change_leases(received, handles=failed) == []
    again = client.receive(topic, group="silent", wait_ms=10_000)
    assert list(again.attempts) == [2]
    assert client.writer_status().appended_offset == end

    assert client.change_leases(again) == []
    until(
        lambda: (
            not client.receive(topic, group="silent").records
            and not lag(client, topic, group="silent")
        )
    )
    [dead] = client.consume("%DLQ%silent", follow=False)
    assert dead.body == received.records[0].body
    assert client.writer_status().appended_offset > end


def test_given_back_messages_wait_and_are_not_under_lease(client: Client, topic: str) -> None:
    client.create_group("patient", backoff=[60_000])
    produce(client, topic, 8)
    until(lambda: lag(client, topic, group="patient") == 8)
    received = client.receive(topic, group="patient", max_messages=5)
    width = received.handle_width

    assert client.change_leases(received, handles=received.receipt_handles[: 3 * width]) == []
    queues = client.describe_group("patient", topic).queues
    assert sum(each.leased for each in queues) == 2
    assert sum(each.waiting for each in queues) == 3
    assert sum(each.lag for each in queues) == 8


async def test_asyncio_iterates_and_handles_alike(aclient: AsyncClient, topic: str) -> None:
    await aclient.produce_many([Message(topic=topic, body=b"%d" % n) for n in range(60)])
    seen: list[bytes] = []

    async with aclient.subscribe(topic, group=GROUP, prefetch=8) as messages:
        async for message in messages:
            seen.append(message.body)
            if len(seen) == 20:
                break

    async def handle(message: LeasedRecord) -> None:
        await asyncio.sleep(0.001)
        if message.body == seen[0]:
            raise ValueError("acknowledged before")
        seen.append(message.body)
        if len(seen) >= 60:
            subscription.stop()

    subscription = aclient.subscribe(topic, group=GROUP)
    await subscription.run(handle, concurrency=16)

    assert Counter(seen) == Counter(b"%d" % n for n in range(60))
