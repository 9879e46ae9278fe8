"""Appending in process beside a bare memcpy: ``python -m bench.append``.

A burst is a round after which dispatch may catch up, in a log file that was warmed whole, as the services
have it where the memory is ample; its limit is a memcpy into pages of such a file that were touched
before. The long figure appends for seconds without a pause and with default settings, dispatch and
syncs beside it; an append that is refused because too much waits for a sync is repeated after the delay
it was given. Its limit is bare files with the same syncs and the same bound, whose pages are faulted
in ahead by a thread as the store's are.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import numpy as np

from bench.controls.bare_files import bare_files
from bench.figures import Figure, alternate, beside, command, seconds_of
from bench.kernels import BATCH_RECORDS, client_batch
from bench.resident import wait_until_warmed
from storage.config import StoreConfig
from storage.errors import StoreBusy
from storage.files.allocator import WARM_FILES
from storage.files.filesystem import FileSystem
from storage.writer import StoreWriter

TOPIC: Final = "orders"
QUEUES: Final = 8
BATCHES: Final = 512  # of a burst
LONG_SECONDS: Final = 5.0
LONG_ROUNDS: Final = 3
BODY_BYTES: Final = 1024
SETTLE_SECONDS: Final = 60.0
LOG_FILE_BYTES: Final = StoreConfig().commit_log_file_size
SOURCES: Final = 16  # batches taken in turn, so that no source stays in the first-level cache
RATE_WANTED: Final = 1.5e6
RATIO_WANTED: Final = 0.5


class Copier:
    """The limit of a burst: batches copied back to back into a mapped file, its pages touched before."""

    def __init__(self, path: Path, size: int, batches: list[bytes]) -> None:
        self._file = FileSystem().create(path, size, allocate=True)
        self._region = self._file.map(writable=True)
        self._region.populate(0, size)
        self._sources = [np.frombuffer(data, np.uint8) for data in batches]
        self._position = 0

    def rate(self, batches: int) -> float:
        """Copy so many batches and return messages per second."""
        target, position = self._region.array, self._position
        longest = max(source.size for source in self._sources)
        if position + batches * longest > len(target):
            position = 0

        def copy() -> None:
            nonlocal position
            for source in islice(cycle(self._sources), batches):
                target[position : position + source.size] = source
                position += source.size

        seconds = seconds_of(copy)
        self._position = position
        return batches * BATCH_RECORDS / seconds

    def close(self) -> None:
        """Let go of the file."""
        self._region.close()
        self._file.close()


def batches_of(*, queues: int) -> list[bytes]:
    """Return batches of 64 records, each 1 KiB as a whole, a batch spread over ``queues`` queues."""
    rng = random.Random(1)
    if queues == 1:
        return [client_batch(rng, number % QUEUES) for number in range(SOURCES)]
    parts = [_records(client_batch(rng, queue)) for queue in range(queues)]
    return [
        b"".join(parts[i % queues][(i + shift) % BATCH_RECORDS] for i in range(BATCH_RECORDS))
        for shift in range(SOURCES)
    ]


def _records(batch: bytes) -> list[bytes]:
    records = []
    position = 0
    while position < len(batch):
        size = int.from_bytes(batch[position : position + 4], "big")
        records.append(batch[position : position + size])
        position += size
    return records


@contextmanager
def _store_of_bursts(directory: Path) -> Iterator[StoreWriter]:
    config = StoreConfig(
        unflushed_bytes_max=8 << 30, warm_cache_bytes_max=WARM_FILES * LOG_FILE_BYTES
    )
    with StoreWriter.open(directory, config) as writer:
        writer.create_topic(TOPIC, QUEUES)
        # With the first append the second file is made.
        writer.append_batch(batches_of(queues=1)[0])
        wait_until_warmed(directory / "commitlog", LOG_FILE_BYTES)
        yield writer


def _append(writer: StoreWriter, sources: list[bytes], batches: int) -> float:
    def work() -> None:
        for batch in islice(cycle(sources), batches):
            writer.append_batch(batch)

    return batches * BATCH_RECORDS / seconds_of(work)


def _drain(writer: StoreWriter) -> None:
    writer.wait_dispatched(writer.appended_offset, 60)


class LongRun:
    """Appends for seconds; ``refused`` counts what had to be repeated."""

    def __init__(self, writer: StoreWriter, sources: list[bytes], seconds: float) -> None:
        self._writer = writer
        self._sources = sources
        self._seconds = seconds
        self.refused = 0

    def rate(self) -> float:
        """Append without a pause; return records stored per second."""
        self.refused = 0  # of a round
        begin = time.perf_counter()
        until = begin + self._seconds
        stored = 0
        for source in cycle(self._sources):
            if time.perf_counter() >= until:
                break
            stored += self._store(source)
        return stored / (time.perf_counter() - begin)

    def settle(self) -> None:
        """Wait until all is in its queue and synced, so that the device is free for the other side."""
        _drain(self._writer)
        until = time.perf_counter() + SETTLE_SECONDS
        while self._writer.status().flushed_offset < self._writer.appended_offset:
            if time.perf_counter() > until:
                raise RuntimeError(f"not synced within {SETTLE_SECONDS:.0f} s")
            time.sleep(0.01)

    def _store(self, source: bytes) -> int:
        while True:
            try:
                return self._writer.append_batch(source).record_count
            except StoreBusy as busy:
                self.refused += 1
                time.sleep(busy.retry_delay_ms / 1000)


def run(
    directory: Path = Path(), *, rounds: int = 21, batches: int = BATCHES, long_rounds: int = LONG_ROUNDS,
    long_seconds: float = LONG_SECONDS,
) -> list[Figure]:  # fmt: skip
    """Append in process beside a bare memcpy, and for seconds beside bare files."""
    return [
        run_long(directory, rounds=long_rounds, seconds=long_seconds),
        *run_bursts(directory, rounds=rounds, batches=batches),
    ]


def run_long(
    directory: Path, *, rounds: int, seconds: float, log_file_bytes: int = LOG_FILE_BYTES
) -> Figure:
    """Measure appends for ``seconds`` a round, with default settings."""
    rng = random.Random(1)
    sources = [client_batch(rng, number % QUEUES, BODY_BYTES) for number in range(SOURCES)]
    config = StoreConfig(commit_log_file_size=log_file_bytes)
    refused: list[int] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-append-", dir=directory) as temporary,
        bare_files(Path(temporary) / "bare", sources, BATCH_RECORDS, config) as bare,
        StoreWriter.open(Path(temporary) / "long", config) as writer,
    ):
        writer.create_topic(TOPIC, QUEUES)
        ours = LongRun(writer, sources, seconds)

        def rest() -> None:
            refused.append(ours.refused)
            ours.settle()

        def limit() -> float:
            rate = bare.rate(seconds)
            bare.settle()
            return rate

        pairs = alternate(ours.rate, limit, rounds=rounds, rest=rest)
    return _figure(
        f"{seconds:g} s with default settings, bodies of 1 KiB",
        pairs,
        "bare files",
        refused=sum(refused[1:]),
    )


def _figure(
    name: str, pairs: list[tuple[float, float]], limit_name: str, *, refused: int | None = None
) -> Figure:
    return beside(
        f"append in process, {name}",
        "msg/s",
        pairs,
        limit_name=limit_name,
        refused=refused,
        wanted=f"{RATE_WANTED:,.0f} msg/s or {RATIO_WANTED} x",
        is_reached=lambda rate, ratio: rate >= RATE_WANTED or ratio >= RATIO_WANTED,
    )


def run_bursts(directory: Path, *, rounds: int, batches: int) -> list[Figure]:
    """Measure bursts to one queue and to eight queues a batch."""
    one, eight = batches_of(queues=1), batches_of(queues=QUEUES)
    size = (4 * batches + 1) * max(len(batch) for batch in one + eight)
    figures = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-append-", dir=directory) as temporary,
        _store_of_bursts(Path(temporary) / "bursts") as writer,
    ):
        copier = Copier(Path(temporary) / "target", size, one)
        for name, sources in (("one queue a batch", one), ("eight queues a batch", eight)):
            pairs = alternate(
                lambda sources=sources: _append(writer, sources, batches),  # type: ignore[misc]
                lambda: copier.rate(batches),
                rounds=rounds,
                rest=lambda: _drain(writer),
            )
            name = f"burst of {batches} batches, {name}, whole records of 1 KiB"
            figures.append(_figure(name, pairs, "memcpy, pages touched"))
        copier.close()
    return figures


if __name__ == "__main__":
    command(run)
