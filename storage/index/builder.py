"""Builds the index files from the confirmed log, a step at a time, and says how far it has come.

What is durable of it is in ``checkpointer``; where it goes on after an unclean end, and what is kept
of files that are not ours, is in ``recovery``. Restarts cost one interval, and nothing is lost or found
twice.

The builder sees within ten seconds that a file is missing. For the newest file it begins again; ``scrub``
rebuilds the others. From a broker's run on the directory until our writer has started again, its log is the
broker's to index: nothing is written, to index files or to the page.
"""

from __future__ import annotations

import logging
import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.checkpoint.trust import Trust, trust_in
from storage.errors import StoreBusy, StoreFull
from storage.index.checkpointer import IndexCheckpointer
from storage.index.directory import IndexDirectory, IndexStart
from storage.index.follower import IndexFollower, LogReader
from storage.index.recovery import (
    recover_foreign,
    recover_from_slot,
)
from storage.index.scrub import IndexScrub
from storage.view.index.index_file import IndexShape

if TYPE_CHECKING:
    from storage.checkpoint.positions import CheckpointFile
    from storage.clock import Clock
    from storage.files.filesystem import FileSystem
    from storage.view.layout import StorePaths

_LOG: Final = logging.getLogger(__name__)
LOOK_S: Final = 10.0  # between looks whether files are missing
CATCH_UP_S: Final = 5.0  # the end gives the rest of the log this long, as a broker's does
LOG_FLUSH_S: Final = 1.0  # and the writer this long to make it durable
LOG_FLUSH_LOOK_S: Final = 0.01


class IndexBuilder:
    """Follows the log of one store directory. One thread at a time, but for its properties."""

    def __init__(
        self,
        paths: StorePaths,
        shape: IndexShape,
        *,
        filesystem: FileSystem,
        clock: Clock,
        checkpoint: CheckpointFile,
        unclean: bool,
        durable_interval_ms: int,
        scrub_interval_ms: int,
        scrub_bytes_per_s: int,
    ) -> None:
        self._clock = clock
        self._checkpoint = checkpoint
        self._unclean = unclean
        self._log = LogReader(filesystem, paths.commit_log)
        self._directory = IndexDirectory(
            filesystem, paths.index, shape, checksums=paths.index_checksums, now_ms=clock.now_ms
        )  # fmt: skip
        self.checkpointer = IndexCheckpointer(
            checkpoint, self._directory, clock=clock, interval_ms=durable_interval_ms
        )
        self._directory.on_filled = self.checkpointer.take_full
        self._follower: IndexFollower | None = None
        self._published_offset = 0
        self._trust: Trust | None = None  # in the page, when it was last looked at
        self._session = 0
        self._looked_at = clock.monotonic()
        self.goes_on = False
        """Whether files are being repaired or checked, and more of that can be done at once."""
        self._is_asked = False  # whether all files are to be checked at the next look
        self._cleaned_offset = 0  # where the log began when files were last deleted with it
        self.scrub = IndexScrub(
            filesystem, self._directory, self._log, clock,
            interval_ms=scrub_interval_ms, bytes_per_s=scrub_bytes_per_s,
        )  # fmt: skip

    @property
    def position(self) -> int:
        """End of the records whose keys can be found, as published; 0 before the first step."""
        return self._published_offset if self._follower is not None else 0

    @property
    def file_count(self) -> int:
        """How many index files there are."""
        return len(self._directory.paths)

    @property
    def is_repaired(self) -> bool:
        """Whether no file is missing, and every one was checked that was asked for."""
        return self.scrub.is_done and not self._is_asked

    def check_all(self) -> None:
        """Check every file from the next step on."""
        self._is_asked = True
        self._looked_at = -math.inf

    @property
    def key_count(self) -> int:
        """How many index entries there are in all files."""
        return sum(max(0, header.next_entry - 1) for header in self._directory.headers().values())

    def step(self) -> bool:
        """Index what is confirmed, one chunk of the log at most; return whether there was any.

        Raises StoreFull when the disk has no room; call it again.
        """
        try:
            return self._try_step()
        except FileNotFoundError:
            if not self._directory.missing():
                raise
            self._follower = None  # the next step begins as at a start
            return True

    def _try_step(self) -> bool:
        trust = self._look_at_page()
        if not trust.durable.trusted:
            self._follower = None  # a broker may be putting to the files
        if not trust.is_live:
            return False
        limit = self._checkpoint.confirm_offset
        if self._follower is not None and self._clock.monotonic() - self._looked_at >= LOOK_S:
            self._look()
        if self._follower is None or self._session != trust.session:
            try:
                self._prepare(limit)
            except BaseException:
                self._follower = None  # files may be gone that it counts on: prepare again
                raise
        follower = self._follower
        assert follower is not None
        moved = follower.step(limit)
        if moved:
            self._checkpoint.publish_indexed(follower.position)
            self._published_offset = follower.position
        if self.checkpointer.is_due:
            self.sync()
        self.goes_on = self._scrub_some()
        return self.goes_on or moved

    def _look_at_page(self) -> Trust:
        """Return what of the checkpoint page holds now."""
        trust = self._trust
        if trust is None or trust.head != self._checkpoint.head:
            trust = self._trust = trust_in(self._checkpoint)
        return trust

    def _scrub_some(self) -> bool:
        """Rebuild or check a little of the older files; return whether there is more to do at once."""
        follower = self._follower
        if follower is None or follower.is_interrupted:
            return False
        goes_on, replaced = self.scrub.step(
            min_commit_offset=self._min_commit_offset, position=follower.position
        )
        if replaced:  # readers open their files again with a new session
            self._checkpoint.start_indexer(indexed_offset=self._published_offset)
        return goes_on

    def _look(self) -> None:
        """See what is to be done beside following the log. That the newest file has gone is met as at a start."""
        self._looked_at = self._clock.monotonic()
        missing, paths = self._directory.missing(), self._directory.paths
        if paths and int(paths[-1].name) in missing:
            for number in sorted(missing):
                _LOG.warning("index file %s is missing", self._directory.path(number))
            self._follower = None
            return
        self.scrub.note_missing(missing)
        if self._is_asked:
            self.scrub.check_all()
            self._is_asked = False
        self._drop_expired()

    def _drop_expired(self) -> None:
        """Delete the files of whose records the log has none any more, but never the newest."""
        min_commit_offset = self._min_commit_offset
        if min_commit_offset <= self._cleaned_offset:
            return
        expired = self._directory.expired(min_commit_offset)
        if expired:
            self.scrub.forget()
            try:
                for number in expired:
                    self._directory.drop(number)
                    path = self._directory.path(number)
                    _LOG.info("deleted %s: the log has its messages no more", path)
            finally:
                self._checkpoint.start_indexer(indexed_offset=self._published_offset)
        self._cleaned_offset = min_commit_offset

    def _prepare(self, end_commit_offset: int) -> None:
        """Find out where to index from: at the start, and when a writer has recovered the log."""
        self._session = self._look_at_page().session
        self.checkpointer.start_session()
        self._directory.refresh()
        start = None
        slot = self.checkpointer.load()
        if slot is not None:
            # A query that meets the newest file while it is taken back says that it saw no more.
            sealed = [h for n, h in self._directory.headers().items() if n < slot.file_name]
            self._checkpoint.publish_indexed(sealed[-1].end_commit_offset if sealed else 0)
            start = recover_from_slot(
                self._directory,
                self._log,
                slot,
                min_commit_offset=self._min_commit_offset,
                end_commit_offset=end_commit_offset,
            )
        if start is None:
            start = recover_foreign(
                self._directory,
                self._log,
                min_commit_offset=self._min_commit_offset,
                end_commit_offset=end_commit_offset,
                index_timestamp_ms=self._checkpoint.durable.broker_fields.index_timestamp_ms,
                unclean=self._unclean,
            )
        self._begin(start)

    def _begin(self, start: IndexStart) -> None:
        """Index on from where the files reach up to."""
        self.scrub.forget()
        self.scrub.note_missing(self._directory.missing())
        position = start.position
        self._follower = IndexFollower(self._log, position, self._directory.put, skip=start.skip)
        self.checkpointer.begin(position)
        self._checkpoint.start_indexer(indexed_offset=position)
        self._published_offset = position

    @property
    def _min_commit_offset(self) -> int:
        return max(self._checkpoint.min_commit_offset, self._log.first_offset)

    def sync(self) -> None:
        """Make the index durable up to ``position``, unless a run of records is only partly in the files."""
        follower = self._follower
        if follower is not None and not follower.is_interrupted:
            self.checkpointer.checkpoint(follower.position)

    def finish(self) -> None:
        """Index what is confirmed, and make everything durable.

        A broker that opens the store next never looks for keys of older records, hence the first;
        it is left after some seconds, and when the disk is full.
        """
        deadline = self._clock.monotonic() + CATCH_UP_S
        self._looked_at = -math.inf
        with suppress(StoreFull, StoreBusy):
            while self.step() and self._clock.monotonic() < deadline:
                pass
        follower = self._follower
        if follower is not None and not follower.is_interrupted:
            self._directory.sync()
            if self._directory.last is not None:
                self._directory.seal(self._directory.last)
            self._wait_for_log(follower.position)
            self.checkpointer.checkpoint(follower.position, clean=True)

    def _wait_for_log(self, commit_offset: int) -> None:
        """Wait until the log is durable up to there, for as long as a writer may make it so."""
        deadline = self._clock.monotonic() + LOG_FLUSH_S
        while (
            self._checkpoint.flushed_offset < commit_offset
            and self._checkpoint.writer_is_writable
            and self._clock.monotonic() < deadline
        ):
            threading.Event().wait(LOG_FLUSH_LOOK_S)

    def close(self) -> None:
        """Close the files; nothing is synced."""
        self.scrub.forget()
        self._directory.close()
        self._log.close()
