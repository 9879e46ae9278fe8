"""What a scrape of /metrics costs: ``python -m bench.upkeep.scrape [--topics N] [--groups N]``.

A store under ``penstock serve`` has so many topics of four queues with messages, and groups with progress in
ten of them each. The page of all services is read every ``--every`` seconds; beside that single messages are
produced, and the same without. Shown: milliseconds to the page, processor milliseconds of a scrape in all
services, and by how much later the 99th of a hundred calls is answered in the half second around a scrape.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import Figure, command
from bench.resident import cpu_seconds
from penstock import Client, RecordBatch
from services.local_services import LocalServices
from services.testing import FREE_PORT
from storage.config import StoreConfig
from storage.reader import StoreReader
from storage.writer import StoreWriter

QUEUES: Final = 4
TOPICS_OF_A_GROUP: Final = 10
MESSAGES: Final = 5  # in a queue
DONE: Final = 2  # of them, by each group
SCRAPES: Final = 10
NEAR_S: Final = 0.25  # of a scrape
WANTED_MS: Final = 100.0
WANTED_SHARE: Final = 0.02  # of a core, at a scrape each 15 s
WANTED_LATER_MS: Final = 5.0


class Scrapes(NamedTuple):
    """When each began, by the monotonic clock, and how long it took."""

    begun: list[float]
    seconds: list[float]


def fill(store: Path, topics: int, groups: int) -> None:
    """Make a stopped store with everything."""
    names = [f"topic-{number:05d}" for number in range(topics)]
    config = StoreConfig(commit_log_file_size=256 << 20, consume_queue_file_size=20_000)
    with StoreWriter.open(store, config) as writer:
        for name in names:
            writer.create_topic(name, QUEUES)
            batch = RecordBatch(name)
            for queue_id in [*range(QUEUES)] * MESSAGES:
                batch.add(b"x" * 100, queue_id=queue_id)
            writer.append_batch(batch.records())
    with StoreReader.open(store) as reader:
        for group in range(groups):
            for place in range(TOPICS_OF_A_GROUP):
                name = names[(group * TOPICS_OF_A_GROUP + place) % topics]
                for queue_id in range(QUEUES):
                    reader.consumer_offsets.commit(f"group-{group}", name, queue_id, DONE)
        reader.consumer_offsets.save()


def scrape(address: str, every_s: float, found: Scrapes) -> None:
    """Read the page again and again."""
    for _ in range(SCRAPES):
        begun = time.monotonic()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            page = answer.read()
        found.begun.append(begun)
        found.seconds.append(time.monotonic() - begun)
        assert b"penstock_up" in page
        time.sleep(max(0.0, begun + every_s - time.monotonic()))


def calls(client: Client, seconds: float) -> Iterator[tuple[float, float]]:
    """Produce one message after the other; yield when each call began, and how long it took."""
    until = time.monotonic() + seconds
    while (begun := time.monotonic()) < until:
        client.produce("topic-00000", b"x")
        yield begun, time.monotonic() - begun
        time.sleep(0.001)


def p99_ms(seconds: list[float]) -> float:
    """Return the 99th of a hundred, in milliseconds."""
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))] * 1e3


def run(*, topics: int = 1_000, groups: int = 100, every_s: float = 3.0) -> list[Figure]:
    """Measure one store."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        store, log = Path(directory) / "store", Path(directory) / "services.log"
        fill(store, topics, groups)
        names = ("writer", "reader", "indexer", "metrics")
        services = LocalServices.start(store, log, addresses=dict.fromkeys(names, FREE_PORT))
        try:
            at = services.addresses
            with Client(writer=at["writer"], reader=at["reader"], indexer=at["indexer"]) as client:
                client.wait_ready(60)
                processes = [int(found) for found in re.findall(r"\(pid (\d+)\)", log.read_text())]
                scrape(at["metrics"], 1.0, Scrapes([], []))  # the first ones read more
                quiet = [seconds for _, seconds in calls(client, SCRAPES * every_s)]
                before, found = cpu_seconds(processes), Scrapes([], [])
                scrape(at["metrics"], every_s, found)
                used_ms = (cpu_seconds(processes) - before) / SCRAPES * 1e3
                found = Scrapes([], [])
                scraping = threading.Thread(target=scrape, args=(at["metrics"], every_s, found))
                scraping.start()
                beside = list(calls(client, SCRAPES * every_s))
                scraping.join()
        finally:
            services.stop()
    near = [
        seconds
        for begun, seconds in beside
        if any(abs(begun - each) < NEAR_S for each in found.begun)
    ]
    later_ms = p99_ms(near) - p99_ms(quiet)
    name = f"/metrics of penstock serve, {topics} topics and {groups} groups"
    return [
        Figure(
            name=name, value=statistics.median(found.seconds) * 1e3, unit="ms",
            wanted=f"{WANTED_MS:g} ms", reached=statistics.median(found.seconds) * 1e3 <= WANTED_MS,
            rounds=[(each * 1e3, None) for each in found.seconds],
        ),
        Figure(
            name="the same: processor time of a scrape", value=used_ms, unit="ms",
            wanted=f"{WANTED_SHARE * 15_000:g} ms", reached=used_ms <= WANTED_SHARE * 15_000,
        ),
        Figure(
            name="the same: p99 of a call beside it, later than without", value=later_ms, unit="ms",
            wanted=f"{WANTED_LATER_MS:g} ms", reached=later_ms <= WANTED_LATER_MS,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    command(run)
