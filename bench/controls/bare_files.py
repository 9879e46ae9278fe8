"""A log without a store: batches copied into the store's log files, synced and bounded as the store's are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Final

from storage.config import StoreConfig
from storage.errors import StoreBusy
from storage.files.allocator import MappedFileAllocator
from storage.files.filesystem import FileSystem
from storage.files.mapped_file import MappedFile

PATIENCE_S: Final = 60.0


class BareFiles:
    """The limit of what is appended for long: one copy a batch, and the device.

    The store's allocator makes files ahead and faults their pages in. One thread syncs each interval, or
    earlier after a quarter of what may be unflushed. A copy that would leave more than that unflushed waits.
    """

    def __init__(
        self, directory: Path, batches: Sequence[bytes], records_a_batch: int, config: StoreConfig
    ) -> None:
        filesystem = FileSystem()
        filesystem.make_directory(directory)
        self._sources = [memoryview(data) for data in batches]
        self._records_a_batch = records_a_batch
        self._unflushed_bytes_max = config.unflushed_bytes_max
        self._interval_s = config.flush_interval_ms / 1000
        self._allocator = MappedFileAllocator(
            filesystem, directory, file_size=config.commit_log_file_size,
            warm_ahead_bytes=config.warm_ahead_bytes,
        )  # fmt: skip
        self._allocator.start()
        self._files: list[MappedFile] = []
        self._target = memoryview(b"")
        self._appended = self._flushed = self._sync_begun = 0
        self._hurried = self._closing = False
        self._changed = threading.Condition()
        self._take(0)
        self._syncing = threading.Thread(target=self._sync, name="bare-files-sync")
        self._syncing.start()

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
        self._wait_for(lambda: self._flushed >= self._appended)

    def close(self) -> None:
        """Stop the threads and let go of the files."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._syncing.join()
        self._allocator.close()
        self._target = memoryview(b"")
        for each in self._files:
            each.close()

    def _take(self, start_offset: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                taken = self._allocator.take(start_offset)
                break
            except StoreBusy:  # it is being made
                if time.monotonic() > until:
                    raise
        with self._changed:
            self._files.append(taken)
        self._target = taken.array.data

    def _append(self, source: memoryview) -> None:
        current = self._files[-1]
        if current.appended_position + len(source) > current.size:
            self._take(current.end_offset)
            current = self._files[-1]
        position = current.appended_position
        end = current.start_offset + position + len(source)
        if end - self._flushed > self._unflushed_bytes_max:
            self._wait_for(lambda: end - self._flushed <= self._unflushed_bytes_max)
        # A copy of memoryviews keeps the interpreter: no other thread comes between two copies.
        self._target[position : position + len(source)] = source
        current.mark_appended(position + len(source))
        self._appended = end
        self._allocator.advance()
        if end - self._sync_begun >= self._unflushed_bytes_max // 4:
            with self._changed:
                self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Have all synced at once, and wait for a condition."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            if not self._changed.wait_for(condition, PATIENCE_S):
                raise RuntimeError(f"the bare files made no progress within {PATIENCE_S:.0f} s")

    def _is_due(self) -> bool:
        unflushed = self._appended - self._sync_begun
        return self._closing or self._hurried or unflushed >= self._unflushed_bytes_max // 4

    def _sync(self) -> None:
        """Sync each interval, or earlier when much waits for it."""
        done = 0  # files that are full and synced
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, self._interval_s)
                if self._closing:
                    return
                self._hurried = False
                self._sync_begun = self._appended
                files = self._files[done:]
            for each in files:
                each.flush()
            done += len(files) - 1
            with self._changed:
                self._flushed = files[-1].start_offset + files[-1].flushed_position
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
