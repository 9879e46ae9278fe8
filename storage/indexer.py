"""The indexer: follows the commit log and keeps the index files, in a process or thread of its own.

It shares nothing with the writer but the files: how far it may read is the confirmed offset of the
checkpoint page, how far it has come it publishes there, and both sides sleep on a word of that page.
The work itself is ``index_builder``'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.checkpoint.positions import CheckpointFile, Role
from storage.errors import NotAStore, StoreClosed, StoreFailed, StoreFull
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.index.builder import IndexBuilder
from storage.view.index_file import IndexShape
from storage.view.index_shape import find_index_shape
from storage.view.layout import StorePaths, effective_config, load_settings

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.config import StoreConfig
    from storage.files.filesystem import FileSystem

DURABLE_INTERVAL_MS: Final = 5_000
IDLE_WAIT_S: Final = 0.25  # how long a stop may, at worst, have to wait for the thread
FULL_RETRY_S: Final = 0.2


class StoreIndexer:
    """Keeps the index of one store directory up to date; at most one per directory."""

    def __init__(
        self,
        builder: IndexBuilder,
        *,
        clock: Clock,
        lock: DirectoryLock,
        checkpoint: CheckpointFile,
    ) -> None:
        self.problem = ""
        self._builder = builder
        self._clock = clock
        self._lock = lock
        self._checkpoint = checkpoint
        self._failure: BaseException | None = None
        self._closed = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-indexer", daemon=True)

    @classmethod
    def open(
        cls,
        directory: Path | str,
        config: StoreConfig,
        *,
        filesystem: FileSystem,
        clock: Clock,
        unclean: bool = True,
        durable_interval_ms: int = DURABLE_INTERVAL_MS,
        new_name: Callable[[], str] | None = None,
    ) -> StoreIndexer:
        """Take the indexer's lock and get ready; ``start`` begins the work.

        ``unclean`` tells how a broker that owned the directory before ended; it matters only for
        index files that are not ours. Raises StoreLocked if another indexer has the directory, and
        NotAStore as long as no writer has opened it.
        """
        paths = StorePaths(Path(directory))
        if not filesystem.exists(paths.checkpoint):
            raise NotAStore(
                f"{directory}: no writer has opened this directory yet; start one first"
            )
        settings = load_settings(filesystem, paths)
        sizes = effective_config(filesystem, paths, config, settings)
        shape = IndexShape(sizes.index_slot_count, sizes.index_entry_count)
        try:
            with ExitStack() as parts:  # let go of if one cannot be had
                lock = DirectoryLock.acquire(filesystem, paths.root, LockRole.INDEXER)
                parts.callback(lock.release)
                checkpoint = CheckpointFile.open(filesystem, paths.checkpoint, Role.INDEXER)
                parts.callback(checkpoint.close)
                builder = IndexBuilder(
                    paths,
                    find_index_shape(filesystem, paths.index, shape),
                    filesystem=filesystem,
                    clock=clock,
                    checkpoint=checkpoint,
                    unclean=unclean,
                    durable_interval_ms=durable_interval_ms,
                    new_name=new_name,
                )
                parts.pop_all()
        except FileNotFoundError as error:
            raise NotAStore(f"{directory}: no writer has opened this directory yet") from error
        return cls(builder, clock=clock, lock=lock, checkpoint=checkpoint)

    @property
    def indexed_offset(self) -> int:
        """End of the records whose keys can be found."""
        return self._builder.position

    @property
    def confirm_offset(self) -> int:
        """End of the records that may be indexed now; 0 while no writer has run since boot."""
        return self._checkpoint.confirm_offset if self._checkpoint.writer_is_current else 0

    @property
    def failure(self) -> BaseException | None:
        """What ended the work for good, None while all is well."""
        return self._failure

    @property
    def file_count(self) -> int:
        """How many index files there are."""
        return self._builder.file_count

    @property
    def key_count(self) -> int:
        """How many index entries there are in all files."""
        return self._builder.key_count

    @property
    def durable_offset(self) -> int:
        """End of what the checkpoint says is durably in the index; -1 before it does."""
        return self._builder.durable_offset

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait_indexed(self, commit_offset: int, timeout_s: float) -> bool:
        """Block until everything before ``commit_offset`` is found by key; False when time is up.

        Raises StoreFailed when the indexer has failed.
        """
        deadline = self._clock.monotonic() + timeout_s
        while True:
            word = self._checkpoint.indexer_word
            if self._failure is not None:
                raise StoreFailed(f"the indexer failed: {self._failure}") from self._failure
            if self.indexed_offset >= commit_offset:
                return True
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0:
                return False
            self._checkpoint.wait_for_indexer(word, min(left_s, IDLE_WAIT_S))

    def step(self) -> bool:
        """Index what is confirmed, one chunk of the log at most; return whether there was any.

        For callers without the thread. Raises StoreFull when the disk has no room; call it again.
        """
        if self._closed:
            raise StoreClosed("the indexer is closed")
        return self._builder.step()

    def sync(self) -> None:
        """Make the index durable up to ``indexed_offset``, which the checkpoint says once the log is, too."""
        self._builder.sync()

    def close(self) -> None:
        """Index what is confirmed, make everything durable, give up the lock.

        It takes some seconds at most; see ``IndexBuilder.finish``. Doing it twice is harmless.
        """
        if self._closed:
            return
        self._closed = True
        self._stopping.set()
        self._checkpoint.interrupt()
        if self._thread.is_alive():
            self._thread.join()
        try:
            if self._failure is None:
                self._builder.finish()
        finally:
            self._builder.close()
            self._checkpoint.close()
            self._lock.release()

    def __enter__(self) -> StoreIndexer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                word = self._checkpoint.writer_word
                try:
                    moved = self._builder.step()
                    self.problem = ""
                except StoreFull as error:
                    self.problem = str(error)
                    self._stopping.wait(FULL_RETRY_S)
                    continue
                if not moved:
                    self._checkpoint.wait_for_writer(word, self._idle_s())
        except BaseException as error:  # noqa: BLE001  whatever it is, the indexer must say so
            self._failure = error
            self.problem = f"indexing failed: {error}"

    def _idle_s(self) -> float:
        return min(max(self._builder.due_in_ms / 1000, 0.01), IDLE_WAIT_S)
