"""Ctrl-C and cancellations while an iterator waits or works: it goes on, and nothing is lost, ended or stuck."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from steps_to_try import examples_to_try

from penstock import AsyncClient, Client, Record
from penstock.values import Message

PRESSES = examples_to_try(150, 4)
PATIENCE_S = 120.0
GROUP = "interrupted"


class Presses:
    """Raises KeyboardInterrupt in this thread, wherever it is, a few milliseconds after `arm`."""

    def __init__(self) -> None:
        self.count = 0
        self._end = time.monotonic() + PATIENCE_S

    @property
    def are_enough(self) -> bool:
        assert time.monotonic() < self._end, f"stuck after {self.count} presses"
        return self.count >= PRESSES

    def arm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.006))

    def press(self, *_: object) -> None:
        self.count += 1
        signal.setitimer(signal.ITIMER_REAL, 1)  # Python ignores what is raised in a finalizer
        raise KeyboardInterrupt


@contextmanager
def pressed() -> Iterator[Presses]:
    presses = Presses()
    before = signal.signal(signal.SIGALRM, presses.press)
    try:
        yield presses
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Traffic:
    """Messages with the bodies 0, 1, 2, ..., sent in a thread until it is stopped."""

    def __init__(self, client: Client, topic: str, queue_id: int | None = None) -> None:
        self.count = 0
        self._client = client
        self._topic = topic
        self._queue_id = queue_id
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Send no more; return how many were sent."""
        self._stopping.set()
        self._thread.join()
        return self.count

    def _run(self) -> None:
        while not self._stopping.wait(0.002):
            bodies = [b"%d" % n for n in range(self.count, self.count + 5)]
            self._client.produce_many(
                [Message(topic=self._topic, body=body, queue_id=self._queue_id) for body in bodies]
            )
            self.count += len(bodies)


def one(record: Record) -> list[Record]:
    return [record]


def read_interrupted(
    items: Iterable[Any], traffic: Traffic, records: Callable[[Any], Iterable[Record]]
) -> list[Record]:
    """Go on with an iterator after each press, then to the end of what was sent; return what it gave."""
    given: list[Any] = []
    with pressed() as presses:
        while not presses.are_enough:
            with suppress(KeyboardInterrupt):
                presses.arm()
                for item in items:
                    given.append(item)  # noqa: PERF402  no press comes between the two lines
                raise AssertionError("the iterator ended")
    count = traffic.stop()
    seen = [record for item in given for record in records(item)]
    left = iter(items)
    while len({record.body for record in seen}) < count:
        seen += records(next(left))
    return seen


def in_order(records: list[Record]) -> bool:
    """Whether the records of each queue are there from the first on, none missing or twice."""
    offsets: dict[int, list[int]] = {}
    for record in records:
        offsets.setdefault(record.queue_id, []).append(record.queue_offset)
    return all(each == list(range(len(each))) for each in offsets.values())


def lag(client: Client, topic: str) -> int:
    return sum(each.lag for each in client.describe_group(GROUP, topic).queues)


def test_a_consumer_goes_on_after_interrupts_and_misses_or_repeats_nothing(
    client: Client, topic: str
) -> None:
    with Traffic(client, topic) as traffic, client.consume(topic, group=GROUP) as consumer:
        seen = read_interrupted(consumer, traffic, one)

    assert len(seen) == traffic.count
    assert in_order(seen)


def test_a_subscription_goes_on_after_interrupts_and_misses_nothing(
    client: Client, topic: str
) -> None:
    with Traffic(client, topic) as traffic, client.subscribe(topic, group=GROUP) as messages:
        read_interrupted(messages, traffic, one)

    assert lag(client, topic) == 0


def test_a_stream_of_pulls_goes_on_after_interrupts_and_misses_or_repeats_nothing(
    client: Client, topic: str
) -> None:
    with Traffic(client, topic, queue_id=0) as traffic:
        pulls = client.pull_stream(topic, 0, 0, follow=True)
        seen = read_interrupted(pulls, traffic, lambda result: result.records)

    assert len(seen) == traffic.count
    assert in_order(seen)


def rows(batch: Any) -> list[Any]:
    return [SimpleNamespace(**row) for row in batch.to_pylist()]


def test_tables_of_a_consumer_go_on_after_interrupts_and_miss_or_repeat_nothing(
    client: Client, topic: str
) -> None:
    pytest.importorskip("pyarrow")
    with Traffic(client, topic) as traffic, client.consume_arrow(topic, group=GROUP) as batches:
        seen = read_interrupted(batches, traffic, rows)

    assert len(seen) == traffic.count
    assert in_order(seen)


async def test_asyncio_iterators_go_on_after_a_wait_that_timed_out(
    aclient: AsyncClient, client: Client, topic: str
) -> None:
    """Each of them many times, while messages come."""

    async def read(items: AsyncIterator[Any], records: Callable[[Any], Iterable[Record]]) -> None:
        seen: list[Record] = []
        timed_out = 0
        end = time.monotonic() + PATIENCE_S
        while timed_out < PRESSES or len({record.body for record in seen}) < traffic.count:
            assert time.monotonic() < end, f"stuck after {timed_out} timeouts, {len(seen)} records"
            if timed_out >= PRESSES:
                await asyncio.to_thread(traffic.stop)
            try:
                seen += records(await asyncio.wait_for(anext(items), random.uniform(0, 0.01)))
            except TimeoutError:
                timed_out += 1

    for records, opened in (
        (one, lambda: aclient.consume(topic)),
        (one, lambda: aclient.subscribe(topic, group=GROUP)),
        (list, lambda: aclient.subscribe(topic, group=GROUP).batches(3)),
        (lambda result: result.records, lambda: aclient.pull_stream(topic, 0, 0, follow=True)),
    ):
        await aclient.delete_topic(topic)
        await aclient.create_topic(topic, queues=4)
        with Traffic(client, topic, queue_id=0) as traffic:
            await read(opened(), records)


def test_a_process_ends_with_its_subscription_still_there(client: Client, topic: str) -> None:
    """The interpreter deletes it when no thread can begin any more."""
    addresses = client.addresses
    script = (
        "from penstock import Client\n"
        f"client = Client(writer={addresses.writer!r}, reader={addresses.reader!r})\n"
        f"client.produce({topic!r}, b'1')\n"
        f"subscription = client.subscribe({topic!r}, group='left')\n"
        "print(next(subscription).body)\n"
        "subscription.close()\n"
        "client.close()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "b'1'\n"
