"""A log without a store: batches copied into mapped files, synced and bounded as the store's are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

from storage.config import StoreConfig
from storage.files.allocator import FILES_AHEAD
from storage.files.filesystem import OsFileSystem
from storage.files.protocol import File, Region

PATIENCE_S: Final = 60.0
WARM_STEP: Final = 16 << 20  # of one call, so that its thread seldom needs the interpreter


@dataclass(slots=True)
class _BareFile:
    file: File
    region: Region
    warm_position: int = 0

    def close(self) -> None:
        self.region.close()
        self.file.close()


class BareFiles:
    """The limit of what is appended for long: one copy a batch, and the device.

    As in the store, one thread makes files ahead and faults their pages in ahead of the copies, and
    one syncs each interval, or earlier after a quarter of what may be unflushed. A copy that would
    leave more than that unflushed waits.
    """

    def __init__(
        self, directory: Path, batches: Sequence[bytes], records_a_batch: int, config: StoreConfig
    ) -> None:
        self._filesystem = OsFileSystem()
        self._filesystem.make_directory(directory)
        self._directory = directory
        self._sources = [memoryview(data) for data in batches]
        self._records_a_batch = records_a_batch
        self._file_bytes = config.commit_log_file_size
        self._unflushed_bytes_max = config.unflushed_bytes_max
        self._early_bytes = config.unflushed_bytes_max // 4
        self._interval_s = config.flush_interval_ms / 1000
        self._warm_ahead_bytes = config.warm_ahead_bytes
        self._files: dict[int, _BareFile] = {}  # by number
        self._current = -1
        self._target = memoryview(b"")
        self._appended = self._flushed = self._sync_begun = 0
        self._hurried = self._closing = False
        self._changed = threading.Condition()
        self._cold = threading.Event()
        self._cold.set()
        self._threads = [
            threading.Thread(target=work, name=f"bare-files-{work.__name__.strip('_')}")
            for work in (self._prepare, self._sync)
        ]
        for thread in self._threads:
            thread.start()

    def rate(self, seconds: float) -> float:
        """Copy for so long; return records per second."""
        begin = time.perf_counter()
        until = begin + seconds
        batches = 0
        for source in cycle(self._sources):
            if time.perf_counter() >= until:
                break
            self._append(source)
            batches += 1
        return batches * self._records_a_batch / (time.perf_counter() - begin)

    def settle(self) -> None:
        """Wait until everything is synced, so that the device is free for the other side."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            self._wait_for(lambda: self._flushed >= self._appended)

    def close(self) -> None:
        """Stop the threads and let go of the files."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._cold.set()
        for thread in self._threads:
            thread.join()
        self._target = memoryview(b"")
        for each in self._files.values():
            each.close()

    def _append(self, source: memoryview) -> None:
        size = len(source)
        number, position = divmod(self._appended, self._file_bytes)
        if position + size > self._file_bytes:
            number, position = number + 1, 0
        end = number * self._file_bytes + position + size
        if end - self._flushed > self._unflushed_bytes_max:
            with self._changed:
                self._hurried = True
                self._changed.notify_all()
                self._wait_for(lambda: end - self._flushed <= self._unflushed_bytes_max)
        if number != self._current:
            self._cold.set()
            with self._changed:
                self._wait_for(lambda: number in self._files)
                self._target = self._files[number].region.array.data
            self._current = number
        # A copy of memoryviews keeps the interpreter: no other thread comes between two copies.
        self._target[position : position + size] = source
        before, self._appended = self._appended, end
        if before // WARM_STEP != end // WARM_STEP:
            self._cold.set()
            if end - self._sync_begun >= self._early_bytes:
                with self._changed:
                    self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        if not self._changed.wait_for(condition, PATIENCE_S):
            raise RuntimeError(f"the bare files made no progress within {PATIENCE_S:.0f} s")

    def _prepare(self) -> None:
        """Make files ahead, and fault pages in ahead of the copies."""
        while not self._closing:
            self._cold.wait()
            self._cold.clear()
            while not self._closing and (self._make_next() or self._warm_step()):
                pass

    def _make_next(self) -> bool:
        first = self._appended // self._file_bytes
        with self._changed:
            missing = set(range(first, first + 1 + FILES_AHEAD)) - self._files.keys()
        if not missing:
            return False
        number = min(missing)
        path = self._directory / f"{number:08d}"
        file = self._filesystem.create(path, self._file_bytes, allocate=True)
        made = _BareFile(file, file.map(writable=True))
        file.sync()
        with self._changed:
            self._files[number] = made
            self._changed.notify_all()
        return True

    def _warm_step(self) -> bool:
        goal = self._appended + self._warm_ahead_bytes
        for number in range(self._appended // self._file_bytes, goal // self._file_bytes + 1):
            each = self._files.get(number)
            if each is None:
                return False
            start = number * self._file_bytes
            begin = max(each.warm_position, self._appended - start)
            end = min(begin + WARM_STEP, goal - start, self._file_bytes)
            if begin < end:
                each.region.populate(begin, end)
                each.warm_position = end
                return True
        return False

    def _sync(self) -> None:
        """Sync each interval, or earlier when much waits for it."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._closing
                        or self._hurried
                        or self._appended - self._sync_begun >= self._early_bytes
                    ),
                    self._interval_s,
                )
                if self._closing:
                    return
                self._hurried = False
                begin, end = self._flushed, self._appended
                self._sync_begun = end
                if begin == end:
                    continue
                last = (end - 1) // self._file_bytes
                unflushed = [self._files[n] for n in range(begin // self._file_bytes, last + 1)]
            for each in unflushed:
                each.file.sync()
            with self._changed:
                self._flushed = end
                self._changed.notify_all()


@contextmanager
def bare_files(
    directory: Path, batches: Sequence[bytes], records_a_batch: int, config: StoreConfig
) -> Iterator[BareFiles]:
    """Give bare files in a new directory, closed afterwards."""
    files = BareFiles(directory, batches, records_a_batch, config)
    try:
        yield files
    finally:
        files.close()
