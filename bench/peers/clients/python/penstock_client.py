"""Load on Penstock by its public client, with its defaults."""

from __future__ import annotations

import time
from collections import deque

from bench.peers.clients.python.meter import (
    ARGUMENTS,
    BODIES,
    Passes,
    Window,
    number,
    payloads,
    result,
)
from penstock import Client, Handle

TOPICS_A_REQUEST = 1000


def connect() -> Client:
    """Return a client of all three services that are ready."""
    client = Client(
        writer=ARGUMENTS["writer"], reader=ARGUMENTS["reader"], indexer=ARGUMENTS["indexer"],
        timeout_s=120,
    )  # fmt: skip
    client.wait_ready(60)
    return client


def create(count: int) -> None:
    """Make topics of one queue."""
    names = [f"bench-{number}" for number in range(count)]
    with connect() as client:
        began = time.perf_counter()
        for first in range(0, count, TOPICS_A_REQUEST):
            client.create_topics(names[first : first + TOPICS_A_REQUEST], queues=1)
        result(count, time.perf_counter() - began)


def produce(size_bytes: int, batch: int, in_flight: int) -> None:
    """Send by the streaming producer, which makes batches of as many bytes as ``batch`` records have."""
    bodies, window, handles, sent = payloads(size_bytes), Window(), deque[Handle](), 0
    with (
        connect() as client,
        client.producer(
            max_in_flight=in_flight, batch_bytes=min(batch * (size_bytes + 110), 1 << 20)
        ) as producer,
    ):
        while window.going():
            for _ in range(batch):
                handles.append(producer.send("bench-0", bodies[sent % BODIES], queue_id=0))
                sent += 1
            while handles and handles[0].done:
                error = handles.popleft().exception()
                if error is None:
                    window.acknowledged(1)
                else:
                    window.fail(error)


def consume() -> None:
    """Read every record's body, from the queue's beginning to its end."""
    passes = Passes()
    with connect() as client:
        more = True
        while more:
            count = 0
            for record in client.consume("bench-0", follow=False):
                count += len(record.body) > 0
            more = passes.end(count)


if __name__ == "__main__":
    if ARGUMENTS["operation"] == "create":
        create(number("topics", 1))
    elif ARGUMENTS["operation"] == "consume":
        consume()
    else:
        produce(number("size_bytes", 1024), number("batch", 64), number("in_flight", 64))
