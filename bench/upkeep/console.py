"""What the console costs: ``python -m bench.upkeep.console [--topics N] [--groups N] [--messages N]``.

A store under ``penstock serve`` has so many topics of four queues, groups with progress in ten of them
each, and messages in the first topic. Shown: milliseconds to each page of a console, the median of three
that are asked for by themselves, and the share of a core that the services spend on open pages
(``--pages N``) that ask anew as a browser does.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2

from bench.figures import Figure, command
from bench.resident import cpu_seconds
from bench.upkeep.scrape import fill
from penstock import Client, RecordBatch
from services.local_services import LocalServices
from services.testing import FREE_PORT

PAGES: Final = {
    "overview": "/",
    "first plot": "/rates.json",
    "topics": "/topics",
    "topics, searched": "/topics?q=00999",
    "topics, the last page": "/topics?page=999",
    "topic": "/topics/topic-00000",
    "browse": "/topics/topic-00000/browse?queue=1",
    "found by key": "/messages?topic=topic-00000&key=key-1",
    "message": "/messages?topic=topic-00000&queue=0&offset=1",
    "groups": "/groups",
    "group": "/groups/group-7",
    "delayed": "/later",
    "log": "/log",
}
OPEN: Final = {
    "/": 2,
    "/topics": 3,
    "/topics/topic-00000": 3,
    "/groups": 4,
    "/groups/group-7": 3,
    "/log": 5,
}
SETTLE_S: Final = 15.0
LOOKS: Final = 3
WANTED_MS: Final = 300.0
WANTED_SHARE: Final = 0.03
BATCH: Final = 1_000
BODY: Final = b"x" * 20


@contextmanager
def console(addresses: dict[str, str]) -> Iterator[str]:
    """Run a console over running services; give its address."""
    options = [f"--{name}={addresses[name]}" for name in ("writer", "reader", "indexer")]
    process = subprocess.Popen(
        [sys.executable, "-m", "services.console", "--listen", FREE_PORT, *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"console serves on (\S+)", process.stdout.readline())
        assert found is not None
        yield f"http://{found[1]}"
    finally:
        process.terminate()
        process.wait(20)


def send(client: Client, messages: int) -> None:
    """Store messages in the first topic."""
    batch = RecordBatch("topic-00000")
    for number in range(BATCH):
        batch.add(BODY, keys=[f"key-{number}"] if number < 2 else (), queue_id=number % 4)
    records = bytes(batch.records())
    for _ in range(messages // BATCH):
        client.produce_batch(records)


def look_ms(browser: httpx2.Client, address: str) -> float:
    """Return how long a page takes, a moment after another one."""
    time.sleep(1.6)  # what was answered is old by then
    begun = time.perf_counter()
    browser.get(address).raise_for_status()
    return (time.perf_counter() - begun) * 1e3


def look(address: str, path: str, every_s: float, until: float) -> None:
    """Be an open page: ask anew every few seconds, the overview for its plots as well."""
    with httpx2.Client(base_url=address, headers={"hx-request": "true"}, timeout=30) as browser:
        while time.monotonic() < until:
            browser.get(path)
            if path == "/":
                browser.get("/rates.json")
            time.sleep(every_s)


def open_pages_share(address: str, processes: Sequence[int], pages: int, seconds: float) -> float:
    """Return the share of a core that services spend on so many open pages, beyond what they do by themselves."""
    time.sleep(5)
    begun, before = time.monotonic(), cpu_seconds(processes)
    time.sleep(seconds)
    idle = (cpu_seconds(processes) - before) / (time.monotonic() - begun)
    until = time.monotonic() + SETTLE_S + seconds + 2
    chosen = [*OPEN.items()] * pages
    threads = [
        threading.Thread(target=look, args=(address, path, every_s, until))
        for path, every_s in chosen[:pages]
    ]
    for thread in threads:
        thread.start()
    time.sleep(SETTLE_S)  # the first look asks for everything
    begun, before = time.monotonic(), cpu_seconds(processes)
    time.sleep(seconds)
    share = (cpu_seconds(processes) - before) / (time.monotonic() - begun)
    for thread in threads:
        thread.join()
    return share - idle


def run(
    *,
    topics: int = 1_000,
    groups: int = 100,
    messages: int = 10_000_000,
    pages: int = 10,
    seconds: float = 20,
) -> list[Figure]:
    """Measure one console."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        store, log = Path(directory) / "store", Path(directory) / "services.log"
        fill(store, topics, groups)
        names = ("writer", "reader", "indexer", "gateway")
        services = LocalServices.start(store, log, addresses=dict.fromkeys(names, FREE_PORT))
        try:
            at = dict(services.addresses)
            with Client(writer=at["writer"], reader=at["reader"], indexer=at["indexer"]) as client:
                client.wait_ready(60)
                client.commit_offset(
                    "group-0", "topic-00000", 0, 2
                )  # the reader keeps offsets from here on
                send(client, messages)
                client.wait_indexed(client.writer_status().appended_offset, timeout_s=120)
            processes = [int(found) for found in re.findall(r"\(pid (\d+)\)", log.read_text())]
            with console(at) as address:
                with httpx2.Client(base_url=address, timeout=60) as browser:
                    firsts = {name: look_ms(browser, path) for name, path in PAGES.items()}
                    times = {
                        name: statistics.median(look_ms(browser, path) for _ in range(LOOKS))
                        for name, path in PAGES.items()
                    }
                share = open_pages_share(address, processes, pages, seconds)
        finally:
            services.stop()
    what = f"{topics} topics, {groups} groups, {messages:,} messages"
    return [
        *(
            Figure(
                name=f"console, {what}: {name}, first look", value=each, unit="ms",
                wanted=f"{WANTED_MS:g} ms", reached=each <= WANTED_MS,
            )
            for name, each in firsts.items()
        ),
        *(
            Figure(
                name=f"console, {what}: {name}", value=each, unit="ms",
                wanted=f"{WANTED_MS:g} ms", reached=each <= WANTED_MS,
            )
            for name, each in times.items()
        ),
        Figure(
            name=f"console, {pages} open pages: processor time of the services", value=share * 100,
            unit="% of a core", wanted=f"{WANTED_SHARE * 100:g} %", reached=share <= WANTED_SHARE,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    command(run)
