"""Creates the next log files before they are needed, and warms pages ahead of the writer.

Two threads, so that a slow creation never delays warming. Creating reserves every block, since a store
to a hole of a mapped file on a full disk is a signal and not an error. What goes wrong ahead of time
is forgotten: the writer meets it when it asks, and asking again tries again.

Warming is of two kinds. A window ahead of the writer is faulted into the map, ready to be stored to.
Where two files fit in ``warm_cache_bytes_max``, the page cache of the whole file, and of the next, is
filled whenever the window is warm: what a page costs is mostly the memory's first touch, and the
window is cheap then. Those pages are clean and mapped by nobody, so they cost neither a sync nor
resident memory.

Whoever appends on an event loop must not wait there: without ``waits`` a file that is not at hand is
refused, made by the thread, and taken with a later try.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.errors import StoreBusy, StoreError
from storage.files.mapped_file import MappedFile
from storage.files.mapped_file_queue import file_path

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.files.transient_store_pool import TransientStorePool

FILES_AHEAD: Final = 2
TAKE_WAIT_S: Final = 0.2
RETRY_DELAY_MS: Final = 20
WARM_FILES: Final = 2  # whose page cache is filled: the one appended to and the next
WARM_STEP: Final = 2 << 20  # bytes faulted in by one call, so that the writer's faults get a turn


class MappedFileAllocator:
    """The source of a log's new files. ``take`` and ``advance`` belong to the appending thread."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        *,
        file_size: int,
        warm_ahead_bytes: int = 0,
        warm_cache_bytes_max: int = 0,
        pool: TransientStorePool | None = None,
        waits: bool = True,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._waits = waits
        self._asked: int | None = None  # in vain, without waiting
        self._problem: Exception | None = None  # of making that one
        self._file_size = file_size
        self._warm_ahead_bytes = warm_ahead_bytes
        self._warms_whole_files = WARM_FILES * file_size <= warm_cache_bytes_max
        self._pool = pool
        self._changed = threading.Condition()
        self._prepared: dict[int, MappedFile] = {}
        self._wanted: list[int] = []
        self._creating: int | None = None
        self._current: MappedFile | None = None
        self._warm_goal = 0
        self._cold = threading.Event()
        self._closing = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads. Without them everything happens in ``take``, and nothing is warmed."""
        for name, work in (("allocate", self._allocate), ("warm", self._warm)):
            if name == "warm" and self._warm_ahead_bytes <= 0 and not self._warms_whole_files:
                continue
            thread = threading.Thread(target=work, name=f"penstock-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def take(self, start_offset: int) -> MappedFile:
        """Return the new file at ``start_offset``, durable, in a pool buffer where there is a pool.

        Waits a little for it if it is being created, creates it if nobody has; without ``waits``
        it only has it created. Raises StoreFull, StoreBusy (not created yet, or no free buffer),
        FileExistsError; all may be tried again.
        """
        mapped = self._at_hand(start_offset) or self._create(start_offset)
        # Kept until the buffer is there, for the next attempt.
        with self._changed:
            self._prepared[start_offset] = mapped
        if self._pool is not None:
            mapped.borrow(self._pool.borrow(start_offset))
        with self._changed:
            del self._prepared[start_offset]
            size = self._file_size
            self._wanted = [start_offset + size * (1 + index) for index in range(FILES_AHEAD)]
            self._changed.notify_all()
        self.follow(mapped)
        return mapped

    def _at_hand(self, start_offset: int) -> MappedFile | None:
        """Return the file, or None where nobody else makes it. Raises what ``take`` does."""
        busy = StoreBusy("the next log file is still being created", retry_delay_ms=RETRY_DELAY_MS)
        with self._changed:
            if self._waits or not self._threads:
                if not self._changed.wait_for(
                    lambda: not self._is_coming(start_offset), TAKE_WAIT_S
                ):
                    raise busy
                return self._prepared.get(start_offset)
            if start_offset in self._prepared:
                return self._prepared[start_offset]
            if self._asked != start_offset:
                self._asked, self._problem = start_offset, None
            if not self._is_coming(start_offset):
                self._wanted.insert(0, start_offset)
                self._changed.notify_all()
            raise (self._problem or busy).with_traceback(None)

    def _is_coming(self, start_offset: int) -> bool:
        return self._creating == start_offset or (
            bool(self._threads) and start_offset in self._wanted
        )

    def follow(self, mapped: MappedFile) -> None:
        """Warm ahead of the writer in this file from now on; ``take`` does it by itself."""
        self._current = mapped
        self._warm_goal = 0
        self.advance()

    def prepare(self, start_offset: int, *, wait: bool = False) -> None:
        """Create the file at ``start_offset`` ahead of need, after opening a store.

        With ``wait`` it is there on return, or could not be created; needs the threads.
        """
        with self._changed:
            self._wanted = [start_offset]
            self._changed.notify_all()
            if wait:
                self._changed.wait_for(lambda: not self._is_coming(start_offset))

    def advance(self) -> None:
        """Tell the warmer that the writer has moved; two comparisons unless there is work."""
        mapped = self._current
        if mapped is not None and mapped.appended_position >= self._warm_goal:
            self._warm_goal = mapped.appended_position + WARM_STEP
            self._cold.set()

    def close(self) -> None:
        """Stop the threads and delete the files that nobody took; not durable by itself."""
        with self._changed:
            self._closing = True
            self._wanted = []
            self._changed.notify_all()
        self._cold.set()
        for thread in self._threads:
            thread.join()
        for mapped in self._prepared.values():
            with suppress(FileNotFoundError):
                self._filesystem.unlink(mapped.path)
            mapped.close()
        self._prepared.clear()
        self._current = None

    def _create(self, start_offset: int) -> MappedFile:
        self._filesystem.make_directory(self._directory)
        return MappedFile.create(
            self._filesystem,
            file_path(self._directory, start_offset),
            size=self._file_size,
            start_offset=start_offset,
        )

    def _allocate(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closing)
                if self._closing:
                    return
                start_offset = self._wanted.pop(0)
                if start_offset in self._prepared:
                    continue
                self._creating = start_offset
            mapped = None
            problem: Exception | None = None
            try:
                mapped = self._create(start_offset)
            except (StoreError, OSError) as error:
                problem = error
            finally:
                with self._changed:
                    self._creating = None
                    if start_offset == self._asked:
                        self._problem = problem
                    if mapped is not None:
                        self._prepared[start_offset] = mapped
                    self._changed.notify_all()
            self._cold.set()

    def _warm(self) -> None:
        while True:
            self._cold.wait()
            self._cold.clear()
            while not self._closing and (self._warm_step() or self._fill_step()):
                pass
            if self._closing:
                return

    def _warm_step(self) -> bool:
        """Fault in a little more of the window ahead of the writer; False when all of it is."""
        mapped = self._current
        if mapped is None:
            return False
        goal = mapped.appended_position + self._warm_ahead_bytes
        if goal > mapped.size and mapped.warm_position >= mapped.size:
            with self._changed:
                following = self._prepared.get(mapped.end_offset)
            if following is None:
                return False
            goal -= mapped.size
            mapped = following
        begin = max(mapped.warm_position, mapped.appended_position)
        if begin >= min(goal, mapped.size):
            return False
        mapped.warm(min(begin + WARM_STEP, goal))
        return True

    def _fill_step(self) -> bool:
        """Fill a little more of this file's or the next one's page cache; False when both are full."""
        if not self._warms_whole_files:
            return False
        current = self._current
        if current is not None and current.fill_cache(WARM_STEP):
            return True
        with self._changed:
            offset = min(self._prepared, default=0) if current is None else current.end_offset
            following = self._prepared.get(offset)
        return following is not None and following.fill_cache(WARM_STEP)
