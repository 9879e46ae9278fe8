"""Appending in process beside a bare memcpy: ``python -m bench.append [--rounds N] [--store DIR]``.

A burst is a round after which dispatch may catch up, in a log file that was warmed whole, as the services
have it where the memory is ample; its limit is a memcpy into pages of such a file that were touched
before. The sustained figure appends without a pause, with dispatch and timed flushes
at work beside it, into pages that nothing touched before, as a log does; its limit is a memcpy that goes
forward through a new file in the same way.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import numpy as np

from bench.figures import Figure, alternate, median_ratio, seconds_of, show
from bench.kernels import BATCH_RECORDS, client_batch
from bench.resident import wait_until_warmed
from storage.config import StoreConfig
from storage.files.allocator import WARM_FILES
from storage.files.filesystem import OsFileSystem
from storage.kernels import warm
from storage.writer import StoreWriter

TOPIC: Final = "orders"
QUEUES: Final = 8
BATCHES: Final = 512  # of a burst
SUSTAINED_BATCHES: Final = 16_384  # 1 GiB
SUSTAINED_ROUNDS: Final = 4
LOG_FILE_BYTES: Final = StoreConfig().commit_log_file_size
SOURCES: Final = 16  # batches taken in turn, so that no source stays in the first-level cache
RATE_WANTED: Final = 1.5e6
RATIO_WANTED: Final = 0.5


class Copier:
    """The limit: batches copied back to back into a mapped file, and nothing else."""

    def __init__(
        self, path: Path, size: int, batches: list[bytes], *, touched: bool = True
    ) -> None:
        self._file = OsFileSystem().create(path, size, allocate=True)
        self._region = self._file.map(writable=True)
        if touched:
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
    """Return batches of 64 records of 1 KiB, each spread over ``queues`` queues."""
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
def _store(directory: Path, *, log_file_bytes: int, warmed: bool) -> Iterator[StoreWriter]:
    config = StoreConfig(unflushed_bytes_max=8 << 30, commit_log_file_size=log_file_bytes)
    if warmed:
        cache = WARM_FILES * config.commit_log_file_size
        config = replace(config, warm_cache_bytes_max=cache)
    with StoreWriter.open(directory, config) as writer:
        writer.create_topic(TOPIC, QUEUES)
        if warmed:
            # With the first append the second file is made.
            writer.append_batch(batches_of(queues=1)[0])
            wait_until_warmed(directory / "commitlog", config.commit_log_file_size)
        yield writer


def _append(writer: StoreWriter, sources: list[bytes], batches: int) -> float:
    def work() -> None:
        for batch in islice(cycle(sources), batches):
            writer.append_batch(batch)

    return batches * BATCH_RECORDS / seconds_of(work)


def _drain(writer: StoreWriter) -> None:
    writer.wait_dispatched(writer.appended_offset, 60)


def _figure(name: str, pairs: list[tuple[float, float]], limit_name: str) -> Figure:
    rate = statistics.median(pair[0] for pair in pairs)
    ratio = median_ratio(pairs)
    return Figure(
        name=f"append in process, {name}",
        value=rate,
        unit="msg/s",
        limit=statistics.median(pair[1] for pair in pairs),
        limit_name=limit_name,
        ratio=ratio,
        wanted=f"{RATE_WANTED:,.0f} msg/s or {RATIO_WANTED} x",
        reached=rate >= RATE_WANTED or ratio >= RATIO_WANTED,
        rounds=pairs,
    )


def run(
    directory: Path,
    *,
    rounds: int,
    batches: int = BATCHES,
    sustained_batches: int = SUSTAINED_BATCHES,
    log_file_bytes: int = LOG_FILE_BYTES,
) -> list[Figure]:
    """Measure bursts to one queue and to eight queues a batch, and one long run of the former."""
    warm()
    one, eight = batches_of(queues=1), batches_of(queues=QUEUES)
    size = (4 * batches + 1) * max(len(batch) for batch in one + eight)
    figures = []
    with tempfile.TemporaryDirectory(prefix="bench-append-", dir=directory) as temporary:
        copier = Copier(Path(temporary) / "target", size, one)
        with _store(
            Path(temporary) / "bursts", log_file_bytes=log_file_bytes, warmed=True
        ) as writer:
            for name, sources in (("one queue a batch", one), ("eight queues a batch", eight)):
                pairs = alternate(
                    lambda sources=sources: _append(writer, sources, batches),  # type: ignore[misc]
                    lambda: copier.rate(batches),
                    rounds=rounds,
                    rest=lambda: _drain(writer),
                )
                figures.append(_figure(name, pairs, "memcpy, pages touched"))
        copier.close()
        longest = max(len(batch) for batch in one)
        fresh = Copier(
            Path(temporary) / "fresh", (sustained_batches + 1) * longest, one, touched=False
        )
        part = max(1, sustained_batches // (SUSTAINED_ROUNDS + 1))  # one round does not count
        with _store(
            Path(temporary) / "sustained", log_file_bytes=log_file_bytes, warmed=False
        ) as writer:
            pairs = alternate(
                lambda: _append(writer, one, part),
                lambda: fresh.rate(part),
                rounds=SUSTAINED_ROUNDS,
                rest=lambda: None,
            )
        name = "sustained, dispatch and flushes beside it"
        figures.append(_figure(name, pairs, "memcpy, new pages"))
        fresh.close()
    return figures


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", type=Path, default=Path(), help="where the files go meanwhile")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    show(run(arguments.store, rounds=arguments.rounds))


if __name__ == "__main__":
    main()
