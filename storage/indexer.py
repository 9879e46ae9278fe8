"""The indexer: follows the commit log and keeps the index files, in a process or thread of its own.

It shares nothing with the writer but the files: how far it may read is the confirmed offset of the
checkpoint page, how far it has come it publishes there, and both sides sleep on a word of that page.
The work itself is ``storage.index.builder``'s.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.checkpoint.positions import CheckpointFile, Role
from storage.checkpoint.trust import trust_in
from storage.errors import NotAStore, StoreClosed, StoreFailed
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.index.builder import IndexBuilder
from storage.view.file_sizes import effective_config
from storage.view.index.index_file import IndexShape
from storage.view.index.shape import find_index_shape
from storage.view.layout import StorePaths
from storage.view.settings import load_settings
from storage.workers import FunctionWorker

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.config import StoreConfig
    from storage.files.filesystem import FileSystem
    from storage.workers import Workers

DURABLE_INTERVAL_MS: Final = 5_000
IDLE_WAIT_S: Final = 1.0  # how long a stop may, at worst, have to wait for the worker
FULL_RETRY_S: Final = 0.2
GATHER_S: Final = 0.1  # of messages that nobody waits to find by key
GATHERED_BYTES_MAX: Final = 1 << 20  # of the log; more is indexed at once


class _WriterBell:
    """Rings when the writer publishes something after the word that was seen last.

    While the indexer gathers it does not ring for that, but for who asks for the index.
    """

    def __init__(self, checkpoint: CheckpointFile, clock: Clock) -> None:
        self._checkpoint = checkpoint
        self._clock = clock
        self._seen = -1  # which no word is
        self._gathers_until: float | None = None
        self._gathers_from = 0  # commit offset that was reached when it began to gather
        self._wanted_offset = 0  # up to where somebody waits for the index

    def look(self) -> None:
        """Take what is published by now for seen; called before looking at it."""
        self._seen = self._checkpoint.writer_word

    def gather(self, position: int) -> None:
        """Let more come before the next step, unless somebody waits for more than ``position``."""
        self._gathers_from = position
        self._gathers_until = self._clock.monotonic() + GATHER_S

    def hurry(self, commit_offset: int) -> None:
        """Gather nothing before the index is there: somebody waits. Safe to call from any thread."""
        # What is not appended yet may be gathered when it comes.
        commit_offset = min(commit_offset, self._checkpoint.appended_offset)
        if commit_offset > self._wanted_offset:  # else those who wait wake each other for ever
            self._wanted_offset = commit_offset
            self._checkpoint.indexer_wake.bump()

    @property
    def has_rung(self) -> bool:
        """Whether something was published since, and enough of it gathered."""
        return self._left_s() <= 0 and self._checkpoint.writer_word != self._seen

    def ring(self) -> None:
        """End every wait, now and from here on."""
        self._checkpoint.interrupt()

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep until something is published, or enough is gathered; False when time is up first."""
        own = self._checkpoint.indexer_wake
        word = own.value  # first: who hurries changes it
        left_s = self._left_s()
        if left_s <= 0:
            return self._checkpoint.wait_for_writer(self._seen, timeout_s) != self._seen
        own.doze(word, left_s if timeout_s is None else min(left_s, timeout_s))
        self._gathers_until = None
        return True

    def _left_s(self) -> float:
        until = self._gathers_until
        if until is None or self._wanted_offset > self._gathers_from:
            return 0.0
        return until - self._clock.monotonic()


class StoreIndexer:
    """Keeps the index of one store directory up to date; at most one per directory."""

    def __init__(
        self,
        builder: IndexBuilder,
        *,
        lock: DirectoryLock,
        checkpoint: CheckpointFile,
        clock: Clock,
        workers: Workers | None = None,
    ) -> None:
        self._builder = builder
        self._lock = lock
        self._checkpoint = checkpoint
        self._closed = False
        self._bell = _WriterBell(checkpoint, clock)
        self._worker = FunctionWorker(
            "index",
            self._work,
            has_work=lambda: self._bell.has_rung,
            idle_s=lambda: min(max(builder.checkpointer.due_in_ms / 1000, 0.01), IDLE_WAIT_S),
            full_retry_s=FULL_RETRY_S,
            workers=workers,
            bell=self._bell,
        )

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
        workers: Workers | None = None,
    ) -> StoreIndexer:
        """Take the indexer's lock and get ready; ``start`` begins the work.

        ``unclean`` says how a broker that owned the directory before ended; it matters only for
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
                    scrub_interval_ms=config.scrub_interval_ms,
                    scrub_bytes_per_s=config.scrub_bytes_per_s,
                )
                parts.pop_all()
        except FileNotFoundError as error:
            raise NotAStore(f"{directory}: no writer has opened this directory yet") from error
        return cls(builder, lock=lock, checkpoint=checkpoint, clock=clock, workers=workers)

    @property
    def indexed_offset(self) -> int:
        """End of the records whose keys can be found."""
        return self._builder.position

    @property
    def confirm_offset(self) -> int:
        """End of the records that may be indexed now.

        0 while no writer of ours has run since the machine started, or since a broker ran here.
        """
        return self._checkpoint.confirm_offset if trust_in(self._checkpoint).is_live else 0

    @property
    def failure(self) -> StoreFailed | None:
        """What ended the work for good, None while all is well."""
        return self._worker.failure

    @property
    def problem(self) -> str:
        """Why nothing is indexed for good, or for now; empty while all is well."""
        return self._worker.problem

    @property
    def file_count(self) -> int:
        """How many index files there are."""
        return self._builder.file_count

    @property
    def key_count(self) -> int:
        """How many index entries there are in all files."""
        return self._builder.key_count

    @property
    def damaged_count(self) -> int:
        """How many files were found to be damaged or missing since the start; they are rebuilt."""
        return self._builder.scrub.damaged_count

    @property
    def scrub_progress(self) -> str:
        """The file that is checked or rebuilt, empty between two."""
        return self._builder.scrub.position

    @property
    def durable_offset(self) -> int:
        """End of what the checkpoint says is durably in the index; -1 before it does."""
        return self._builder.checkpointer.durable_offset

    def start(self) -> None:
        """Start the worker."""
        self._worker.start()

    def hurry(self, commit_offset: int) -> None:
        """Index up to ``commit_offset`` without gathering more: somebody waits for it."""
        if self.indexed_offset < commit_offset:
            self._bell.hurry(commit_offset)

    def wait_indexed(self, commit_offset: int, timeout_s: float) -> bool:
        """Block until everything before ``commit_offset`` is found by key; False when time is up.

        Raises StoreFailed when the indexer has failed.
        """
        self.hurry(commit_offset)
        if self._worker.wait_for(lambda: self.indexed_offset >= commit_offset, timeout_s):
            return True
        self._worker.check()
        return False

    def check_all(self) -> None:
        """Check every full index file at once, and rebuild what is damaged."""
        self._builder.check_all()

    def wait_repaired(self, timeout_s: float) -> bool:
        """Block until no file is missing, and every one was checked that was asked for; False when time is up.

        Raises StoreFailed when the indexer has failed.
        """
        if self._worker.wait_for(lambda: self._builder.is_repaired, timeout_s):
            return True
        self._worker.check()
        return False

    def step(self) -> bool:
        """Index what is confirmed, one chunk of the log at most; return whether there was any.

        For callers that do not ``start``. Raises StoreFull when the disk has no room; call it again.
        """
        if self._closed:
            raise StoreClosed("the indexer is closed")
        return self._worker.guarded(self._step)

    def sync(self) -> None:
        """Make the index durable up to ``indexed_offset``, as far as the log is; the checkpoint says so."""
        self._builder.sync()

    def close(self) -> None:
        """Index what is confirmed, make everything durable, give up the lock.

        It takes some seconds at most; see ``IndexBuilder.finish``. Doing it twice is harmless.
        """
        if self._closed:
            return
        self._closed = True
        self._worker.stop()
        try:
            if self._worker.failure is None:
                self._builder.finish()
        finally:
            self._builder.close()
            self._checkpoint.close()
            self._lock.release()

    def __enter__(self) -> StoreIndexer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> float | None:
        moved = self._step()
        if not moved:
            return None
        position = self._builder.position
        missing = self._checkpoint.confirm_offset - position
        if self._builder.goes_on or missing > GATHERED_BYTES_MAX:
            return 0.0
        self._bell.gather(position)
        return None

    def _step(self) -> bool:
        self._bell.look()
        moved = self._builder.step()
        self._worker.notify()
        return moved
