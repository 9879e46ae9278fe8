"""The client's streaming producer at full rate with its defaults: how long a message takes to its answer.

One process sends messages of 1 KiB to one queue as fast as it can. The control is the same producer with
one batch in flight and no order to keep, which queues nothing: its time is that of one batch's way.
"""

from __future__ import annotations

import statistics
import threading
import time
from queue import SimpleQueue
from typing import Final

from bench import drivers
from bench.figures import Figure, command
from penstock import Client, Handle

TOPIC: Final = "bench"
BODY: Final = b"x" * 1024
SECONDS: Final = 5.0
SAMPLED: Final = 101  # each so many-th message is timed
P99_WANTED_MS: Final = 50.0


def time_producer(client: Client, seconds: float, **options: int | bool) -> tuple[float, float]:
    """Send for ``seconds``; return messages stored per second, and the p99 from send to answer in ms."""
    taken: list[float] = []
    handles: SimpleQueue[tuple[float, Handle] | None] = SimpleQueue()

    def collect() -> None:
        while (sent := handles.get()) is not None:
            sent_at, handle = sent
            handle.result(60)
            taken.append(time.perf_counter() - sent_at)

    collecting = threading.Thread(target=collect)
    collecting.start()
    count = 0
    begin = time.perf_counter()
    with client.producer(**options) as producer:  # type: ignore[arg-type]  # as the caller chose
        while time.perf_counter() - begin < seconds:
            for _ in range(SAMPLED):
                sent_at = time.perf_counter()
                handle = producer.send(TOPIC, BODY, queue_id=0)
            handles.put((sent_at, handle))
            count += SAMPLED
    rate = count / (time.perf_counter() - begin)
    handles.put(None)
    collecting.join()
    return rate, statistics.quantiles(taken, n=100)[98] * 1000


def run(*, rounds: int = 3, seconds: float = SECONDS) -> list[Figure]:
    """Start a writer with default settings and time the producer beside its control."""
    pairs = []
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store) as (at, _),
        Client(writer=at) as client,
    ):
        client.create_topic(TOPIC, queues=1)
        for number in range(rounds + 1):
            control = time_producer(client, seconds, max_in_flight=1, ordered=False)
            ours = time_producer(client, seconds)
            if number:
                pairs.append((ours, control))
    p99s_ms = [(ours[1], control[1]) for ours, control in pairs]
    rates = [(ours[0], control[0]) for ours, control in pairs]
    p99_ms, rate = statistics.median(p for p, _ in p99s_ms), statistics.median(r for r, _ in rates)
    return [
        Figure(
            name="streaming producer, defaults, one queue, full rate: p99 to the answer",
            value=p99_ms,
            unit="ms",
            limit=statistics.median(limit for _, limit in p99s_ms),
            limit_name="one batch in flight",
            wanted=f"{P99_WANTED_MS:.0f} ms",
            reached=p99_ms <= P99_WANTED_MS,
            rounds=p99s_ms,
        ),
        Figure(
            name="streaming producer, defaults, one queue, full rate",
            value=rate,
            unit="msg/s",
            limit=statistics.median(limit for _, limit in rates),
            limit_name="one batch in flight",
            ratio=statistics.median(ours / limit for ours, limit in rates),
            wanted="1 x",
            reached=rate >= statistics.median(limit for _, limit in rates),
            rounds=rates,
        ),
    ]


if __name__ == "__main__":
    command(run)
