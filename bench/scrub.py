"""The scrub alone: how much of a store one core checks: ``python -m bench.scrub``.

A store of records of 1 KiB in eight queues is read as a running writer reads it, without its rests: log,
checksums, and the units of the queues. The limit is the same files read past the page cache, with nothing
done to them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Final

from bench.append import QUEUES, TOPIC, batches_of
from bench.figures import Figure, alternate, beside, command
from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.files.filesystem import FileSystem
from storage.files.uncached import aligned_array
from storage.journal.states import StateJournal
from storage.scrub.log_windows import WINDOW
from storage.scrub.worker import ScrubWorker
from storage.view.layout import StorePaths
from storage.writer import StoreWriter

GIB: Final = 1 << 30
GIB_WANTED: Final = 1.0


def _fill(directory: Path, size: int, log_file_bytes: int) -> int:
    """Make a store with a log of so many bytes; return where it ends."""
    config = StoreConfig(commit_log_file_size=log_file_bytes, unflushed_bytes_max=2 * size)
    with StoreWriter.open(directory, config) as writer:
        writer.create_topic(TOPIC, QUEUES)
        for batch in cycle(batches_of(queues=QUEUES)):
            if writer.appended_offset >= size:
                break
            writer.append_batch(batch)
        return writer.appended_offset


def _core_seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def run(
    directory: Path = Path(), *, gib: float = 1.0, rounds: int = 7, log_file_bytes: int = 1 << 28
) -> list[Figure]:
    """Measure passes over a store of ``gib``; by processor time, as devices differ."""
    filesystem = FileSystem()
    with tempfile.TemporaryDirectory(prefix="bench-scrub-", dir=directory) as temporary:
        paths = StorePaths(Path(temporary))
        end = _fill(paths.root, int(gib * GIB), log_file_bytes)
        scrub = ScrubWorker(
            filesystem, paths, StateJournal(filesystem, paths.journal), SystemClock(), interval_ms=1, bytes_per_s=1 << 50,
            min_offset=lambda: 0, durable_offset=lambda: end,
        )  # fmt: skip

        def make_a_pass() -> None:
            before = scrub.status.completed_ms
            time.sleep(0.002)  # the pass before began earlier
            while scrub.status.completed_ms == before:
                scrub.work()
            if scrub.status.finding_count:
                raise RuntimeError(f"the store is damaged: {scrub.status.last_finding}")

        def read() -> None:
            buffer = aligned_array(WINDOW)
            for path in sorted(paths.commit_log.iterdir()):
                file = filesystem.open(path, writable=False)
                for position in range(0, file.size, WINDOW):
                    file.read_uncached(buffer, position)
                file.close()

        pairs = alternate(
            lambda: end / GIB / _core_seconds(make_a_pass),
            lambda: end / GIB / _core_seconds(read),
            rounds=rounds,
        )
    return [
        beside(
            f"scrub alone, {gib:g} GiB in records of 1 KiB, by processor time",
            "GiB/s a core",
            pairs,
            limit_name="files read past the page cache",
            wanted=f"{GIB_WANTED:g} GiB/s",
            is_reached=lambda value, _: value >= GIB_WANTED,
        )
    ]


if __name__ == "__main__":
    command(run)
