"""Creates the next log files before they are needed, and warms pages ahead of the writer.

Two workers, so that a slow creation never delays warming. Creating reserves every block, since a store
to a hole of a mapped file on a full disk is a signal and not an error. What goes wrong ahead of time
is forgotten: the writer meets it when it asks, and asking again tries again.

Warming is of two kinds. A window ahead of the writer is faulted into the map, ready to be stored to.
Where two files fit in ``warm_cache_bytes_max``, the page cache of the whole file, and of the next, is
filled whenever the window is warm: what a page costs is mostly the memory's first touch, and the
window is cheap then. Those pages are clean and mapped by nobody, so they cost neither a sync nor
resident memory.

Whoever appends on an event loop must not wait there: without ``waits`` a file that is not at hand is
refused, made by the worker, and taken with a later try.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.errors import StoreBusy, StoreError
from storage.files.mapped_file import MappedFile
from storage.files.mapped_file_queue import file_path
from storage.workers import FunctionWorker

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.files.transient_store_pool import TransientStorePool
    from storage.workers import Workers

FILES_AHEAD: Final = 2
TAKE_WAIT_S: Final = 0.2
RETRY_DELAY_MS: Final = 20
WARM_FILES: Final = 2  # whose page cache is filled: the one appended to and the next
WARM_STEP: Final = 2 << 20  # bytes faulted in by one call, so that the writer's faults get a turn
FILL_REST_S: Final = 0.02  # between two such steps beyond the window, as long as little is appended: each costs calls some ms
LITTLE_APPENDED: Final = 64 << 10  # bytes from one such step to the next


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
        workers: Workers | None = None,
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
        self._prepared: dict[int, MappedFile] = {}
        self._wanted: list[int] = []
        self._creating: int | None = None
        self._current: MappedFile | None = None
        self._warm_goal = 0
        self._cold = False
        self._filled_at = 0  # where the appends were at the last step beyond the window
        self.maker = FunctionWorker(
            "allocate", self._make_next, has_work=lambda: bool(self._wanted), workers=workers
        )
        self.warmer = FunctionWorker(
            "warm", self._warm, has_work=lambda: self._cold, workers=workers
        )
        self._changed = self.maker.changed  # guards the files prepared, wanted and being created

    def start(self) -> None:
        """Start the workers. Without them everything happens in ``take``, and nothing is warmed."""
        self.maker.start()
        if self._warm_ahead_bytes > 0 or self._warms_whole_files:
            self.warmer.start()

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
        self.maker.wake()
        self.follow(mapped)
        return mapped

    def _at_hand(self, start_offset: int) -> MappedFile | None:
        """Return the file, or None where nobody else makes it. Raises what ``take`` does."""
        busy = StoreBusy("the next log file is still being created", retry_delay_ms=RETRY_DELAY_MS)
        if self._waits or not self.maker.is_running:
            if not self._wait_for(start_offset, TAKE_WAIT_S):
                raise busy
            return self._prepared.get(start_offset)
        with self._changed:
            if start_offset in self._prepared:
                return self._prepared[start_offset]
            if self._asked != start_offset:
                self._asked, self._problem = start_offset, None
            if not self._is_coming(start_offset):
                self._wanted.insert(0, start_offset)
                self.maker.wake()
            raise (self._problem or busy).with_traceback(None)

    def _wait_for(self, start_offset: int, timeout_s: float | None) -> bool:
        """Wait until the file is there or nobody makes it; False when time is up first."""
        if not self._is_coming(start_offset):
            return True
        self.maker.wait_for(lambda: not self._is_coming(start_offset), timeout_s)
        return not self._is_coming(start_offset)

    def _is_coming(self, start_offset: int) -> bool:
        with self._changed:
            is_wanted = start_offset == self._creating or start_offset in self._wanted
            return is_wanted and self.maker.is_running and not self.maker.has_ended

    def follow(self, mapped: MappedFile) -> None:
        """Warm ahead of the writer in this file from now on; ``take`` does it by itself."""
        self._current = mapped
        self._warm_goal = 0
        self.advance()

    def prepare(self, start_offset: int, *, wait: bool = False) -> None:
        """Create the file at ``start_offset`` ahead of need, after opening a store.

        With ``wait`` it is there on return, or could not be created; needs the worker.
        """
        with self._changed:
            self._wanted = [start_offset]
        self.maker.wake()
        if wait:
            self._wait_for(start_offset, None)

    def advance(self) -> None:
        """Have the warmer follow the writer; two comparisons unless there is work."""
        mapped = self._current
        if mapped is not None and mapped.appended_position >= self._warm_goal:
            self._warm_goal = mapped.appended_position + WARM_STEP
            self._look_for_cold_pages()

    def _look_for_cold_pages(self) -> None:
        self._cold = True
        self.warmer.wake()

    def close(self) -> None:
        """Stop the workers and delete the files that nobody took; not durable by itself."""
        with self._changed:
            self._wanted = []
        for worker in (self.maker, self.warmer):
            worker.end()
        for worker in (self.maker, self.warmer):
            worker.stop()
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

    def _make_next(self) -> None:
        """Create the first of the wanted files; what goes wrong is for ``take`` to meet again."""
        with self._changed:
            if not self._wanted:
                return
            start_offset = self._wanted.pop(0)
            if start_offset in self._prepared:
                return
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
                if mapped is None:
                    # None behind it either: names come in order, and so does what a listing shows.
                    self._wanted = [offset for offset in self._wanted if offset < start_offset]
                if start_offset == self._asked:
                    self._problem = problem
                if mapped is not None:
                    self._prepared[start_offset] = mapped
                self._changed.notify_all()
        self._look_for_cold_pages()

    def _warm(self) -> float | None:
        """Warm a little; the window ahead of the writer first. Returns when to go on, None if all is warm."""
        self._cold = False
        if self._warm_step():
            return 0.0
        if not self._fill_step():
            return None
        mapped = self._current
        before, self._filled_at = self._filled_at, 0 if mapped is None else mapped.appended_position
        return FILL_REST_S if abs(self._filled_at - before) <= LITTLE_APPENDED else 0.0

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
