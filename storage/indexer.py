"""The indexer: follows the commit log and keeps the index files, in a process or thread of its own.

It shares nothing with the writer but the files: how far it may read is the confirmed offset of the
checkpoint page, how far it has come it publishes there, and both sides sleep on a word of that page.

What is durable: every interval the last file is synced; the checkpoint then gets the offset up to
which the index is complete together with that file's header, as soon as the log is durable up to
there, for an index that is ahead of a log which lost its end would hold keys of what is gone. After
an unclean end the file is taken back to that header and the log is indexed again from that offset,
so restarts cost one interval, and nothing is lost or found twice. A file that has become full is
synced before the broker's own mark at byte 16 of the checkpoint is raised to its end time.

Files that somebody deletes while it works are missed within a second, with a warning, and what they
held is indexed again. Where files of ours are gone at the start, or the log has lost more than it
could, it goes on with the newest file that is sure to be right (``go_back``), and again nothing is
lost or found twice. Index files that are not ours (no slot, another store's, or made by a broker
since) are taken over as ``take_over`` says.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.durable_positions import DurableIndex
from storage.errors import NotAStore, StoreClosed, StoreFailed, StoreFull
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.format.index import HEADER_SIZE, IndexHeader
from storage.index_directory import IndexDirectory
from storage.index_file import IndexFile, IndexShape
from storage.index_follower import IndexFollower, LogReader
from storage.index_shape import find_index_shape
from storage.index_take_over import agrees, covers_log, go_back, take_over
from storage.layout import StorePaths, effective_config, load_settings
from storage.positions import CheckpointFile, Role

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.config import StoreConfig
    from storage.files.filesystem import FileSystem

_LOG: Final = logging.getLogger(__name__)
DURABLE_INTERVAL_MS: Final = 5_000
LOOK_S: Final = 1.0  # between looks whether somebody has deleted files
IDLE_WAIT_S: Final = 0.25  # how long a stop may, at worst, have to wait for the thread
FULL_RETRY_S: Final = 0.2
CATCH_UP_S: Final = 5.0  # a stop gives the rest of the log this long, as a broker's does
LOG_FLUSH_S: Final = 1.0  # and the writer this long to make it durable
LOG_FLUSH_LOOK_S: Final = 0.01


class _Synced(NamedTuple):
    """What is synced, to be promised once the log is durable up to there."""

    offset: int
    file_name: int
    file_header: bytes
    index_timestamp_ms: int | None


class StoreIndexer:
    """Keeps the index of one store directory up to date; at most one per directory."""

    def __init__(
        self,
        paths: StorePaths,
        shape: IndexShape,
        *,
        filesystem: FileSystem,
        clock: Clock,
        lock: DirectoryLock,
        checkpoint: CheckpointFile,
        unclean: bool,
        durable_interval_ms: int,
        new_name: Callable[[], str] | None,
    ) -> None:
        self.problem = ""
        self._clock = clock
        self._lock = lock
        self._checkpoint = checkpoint
        self._unclean = unclean
        self._durable_interval_ms = durable_interval_ms
        self._log = LogReader(filesystem, paths.commit_log)
        self._directory = IndexDirectory(
            filesystem, paths.index, shape, now_ms=clock.now_ms, new_name=new_name
        )
        self._follower: IndexFollower | None = None
        self._session = 0
        self._store_id = b""
        self._index_timestamp_ms: int | None = None
        self._synced: _Synced | None = None
        self._durable_offset = -1
        self._durable_at = clock.monotonic()
        self._looked_at = clock.monotonic()
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
        lock = DirectoryLock.acquire(filesystem, paths.root, LockRole.INDEXER)
        try:
            checkpoint = CheckpointFile.open(filesystem, paths.checkpoint, Role.INDEXER)
            return cls(
                paths,
                find_index_shape(filesystem, paths.index, shape),
                filesystem=filesystem,
                clock=clock,
                lock=lock,
                checkpoint=checkpoint,
                unclean=unclean,
                durable_interval_ms=durable_interval_ms,
                new_name=new_name,
            )
        except FileNotFoundError as error:
            lock.release()
            raise NotAStore(f"{directory}: no writer has opened this directory yet") from error
        except BaseException:
            lock.release()
            raise

    @property
    def indexed_offset(self) -> int:
        """End of the records whose keys can be found."""
        return self._follower.position if self._follower is not None else 0

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
        return len(self._directory.paths)

    @property
    def key_count(self) -> int:
        """How many index entries there are in all files."""
        return sum(max(0, header.next_entry - 1) for header in self._directory.headers())

    @property
    def durable_offset(self) -> int:
        """End of what the checkpoint promises to be in the index; -1 before it does."""
        return self._durable_offset

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
        return self._step()

    def _step(self) -> bool:
        try:
            return self._try_step()
        except FileNotFoundError:
            if not self._directory.lost():
                raise
            self._looked_at = -math.inf
            return True

    def _try_step(self) -> bool:
        if not self._checkpoint.writer_is_current:
            return False
        limit = self._checkpoint.confirm_offset
        if self._follower is not None and self._clock.monotonic() - self._looked_at >= LOOK_S:
            self._replace_lost(limit)
        if self._follower is None or self._session != self._checkpoint.writer_session:
            try:
                self._prepare(limit)
            except BaseException:
                self._follower = None  # files may be gone that it counts on: prepare anew
                raise
        follower = self._follower
        assert follower is not None
        moved = follower.step(limit)
        if moved:
            self._checkpoint.publish_indexed(follower.position)
        age_ms = (self._clock.monotonic() - self._durable_at) * 1000
        if self._index_timestamp_ms is not None or age_ms >= self._durable_interval_ms:
            self.sync()
        elif self._synced is not None:
            self._promise()
        return moved

    def _replace_lost(self, end_commit_offset: int) -> None:
        """Go back behind the first file that somebody has deleted, to index from there again."""
        lost = self._give_up_lost()
        self._looked_at = self._clock.monotonic()
        if not lost:
            return
        self._begin(
            go_back(
                self._directory,
                self._log,
                file_name=int(lost[0].name),
                min_commit_offset=self._min_commit_offset,
                end_commit_offset=end_commit_offset,
            )
        )

    def _give_up_lost(self) -> list[Path]:
        """Forget the files that somebody has deleted since they were listed, with a warning each."""
        lost = self._directory.lost()
        if lost:
            for path in lost:
                _LOG.warning("index file %s is gone; what it held is indexed again", path)
            self._follower = None  # until the files are right again
            self._directory.give_up(lost)
        return lost

    def sync(self) -> None:
        """Make the index durable up to ``indexed_offset`` and say so in the checkpoint.

        It is said now if the log is durable up to there, else by one of the next steps; until then
        nothing newer is synced.
        """
        self._durable_at = self._clock.monotonic()
        follower = self._follower
        if self._synced is None and follower is not None and not follower.is_interrupted:
            if follower.position == self._durable_offset:
                return
            self._sync_files(follower.position)
        self._promise()

    def _sync_files(self, position: int) -> None:
        self._directory.sync()
        last = self._directory.last
        self._synced = _Synced(
            position,
            last.number if last is not None else 0,
            last.header_bytes if last is not None else bytes(HEADER_SIZE),
            self._index_timestamp_ms,
        )

    def _promise(self, *, clean: bool = False, anyway: bool = False) -> None:
        synced = self._synced
        if synced is None or not (anyway or synced.offset <= self._checkpoint.flushed_offset):
            return
        self._checkpoint.durable.store_index(
            store_id=self._store_id,
            indexed_offset=synced.offset,
            file_name=synced.file_name,
            file_header=synced.file_header,
            index_timestamp_ms=synced.index_timestamp_ms,
            clean=clean,
        )
        self._durable_offset = synced.offset
        self._synced = None
        if self._index_timestamp_ms == synced.index_timestamp_ms:
            self._index_timestamp_ms = None

    def close(self) -> None:
        """Index what is confirmed, make everything durable, give up the lock.

        A broker that opens the store next never looks for keys of older records, hence the first;
        it is left after some seconds, and when the disk is full. Doing it twice is harmless.
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
                deadline = self._clock.monotonic() + CATCH_UP_S
                self._looked_at = -math.inf
                with suppress(StoreFull):
                    while self._step() and self._clock.monotonic() < deadline:
                        pass
            if self._failure is None and self._follower is not None:
                self._leave(self._follower)
                self._checkpoint.stop_indexer()
        finally:
            self._directory.close()
            self._log.close()
            self._checkpoint.close()
            self._lock.release()

    def _leave(self, follower: IndexFollower) -> None:
        """Sync all, and promise it: at once where the writer has stopped, else when it has flushed."""
        self._promise()
        if follower.is_interrupted:
            return
        self._sync_files(follower.position)
        deadline = self._clock.monotonic() + LOG_FLUSH_S
        while (
            self._checkpoint.flushed_offset < follower.position
            and self._checkpoint.writer_is_writable
            and self._clock.monotonic() < deadline
        ):
            threading.Event().wait(LOG_FLUSH_LOOK_S)
        self._promise(clean=True)

    def __enter__(self) -> StoreIndexer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self, end_commit_offset: int) -> None:
        """Find out where to index from: at the start, and when a writer has recovered the log."""
        self._session = self._checkpoint.writer_session
        self._store_id = self._checkpoint.durable.load().store_id
        self._synced = None
        if (
            self._follower is not None
            and self._follower.position <= end_commit_offset
            and self._ends_like_the_log()
        ):
            return
        self._give_up_lost()
        position = self._resume_own(end_commit_offset)
        if position < 0:
            position = take_over(
                self._directory,
                self._log,
                min_commit_offset=self._min_commit_offset,
                end_commit_offset=end_commit_offset,
                index_timestamp_ms=self._checkpoint.durable.broker_fields.index_timestamp_ms,
                unclean=self._unclean,
            )
        self._begin(position)

    def _begin(self, position: int) -> None:
        """Index from ``position`` on, which the files reach up to."""
        self._synced = None
        self._follower = IndexFollower(self._log, position, self._directory, on_filled=self._filled)
        self._index_timestamp_ms = None  # of a file that is no longer there, or not full
        # From here on the files may be ahead of a slot that says clean, or have other names.
        self._durable_offset = -1
        self._sync_files(position)
        self._promise(anyway=True)
        self._checkpoint.start_indexer(indexed_offset=position)

    @property
    def _min_commit_offset(self) -> int:
        return max(self._checkpoint.min_commit_offset, self._log.first_offset)

    def _ends_like_the_log(self) -> bool:
        last = self._directory.last
        return last is None or agrees(self._log, last.header)

    def _resume_own(self, end_commit_offset: int) -> int:
        """Take our files back to what is sure; return where to go on, -1 if they are not ours."""
        slot = self._checkpoint.durable.load_index()
        if not slot.present or slot.store_id != self._store_id or self._directory.misfits:
            return -1
        numbers = [int(path.name) for path in self._directory.paths]
        if slot.indexed_offset <= end_commit_offset and self._go_on(slot, numbers):
            return slot.indexed_offset
        if slot.file_name not in numbers and numbers and numbers[-1] > slot.file_name:
            return -1  # a broker dropped ours and made its own
        return go_back(
            self._directory,
            self._log,
            file_name=slot.file_name,
            min_commit_offset=self._min_commit_offset,
            end_commit_offset=end_commit_offset,
        )

    def _go_on(self, slot: DurableIndex, numbers: list[int]) -> bool:
        """Take the files back to the slot; return whether they could be."""
        if slot.file_name == 0:
            self._directory.drop_from(0)
            return True
        header = IndexHeader.decode(slot.file_header)
        if slot.file_name not in numbers or not agrees(self._log, header):
            return False
        kept = numbers.index(slot.file_name) + 1
        headers = self._directory.headers()[:kept]
        if not covers_log(self._log, headers, self._min_commit_offset):
            return False  # an older file is gone
        if kept < len(numbers):
            self._directory.drop_from(kept)
        if not self._is_untouched(slot):
            self._directory.truncate_last(header)
        return True

    def _is_untouched(self, slot: DurableIndex) -> bool:
        last = self._directory.last
        return slot.clean and last is not None and last.header_bytes == slot.file_header

    def _filled(self, file: IndexFile) -> None:
        """A file is full: force it; the mark for brokers follows with the next slot."""
        file.sync()
        self._index_timestamp_ms = file.header.end_timestamp_ms
        file.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                word = self._checkpoint.writer_word
                try:
                    moved = self._step()
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
        left_s = self._durable_interval_ms / 1000 - (self._clock.monotonic() - self._durable_at)
        return min(max(left_s, 0.01), IDLE_WAIT_S)
