"""Builds the index files from the confirmed log, a step at a time, and says how far it has come.

What is durable of it is in ``checkpointer``; where it goes on after an unclean end, and what is kept
of files that are not ours, is in ``recovery``. Restarts cost one interval, and nothing is lost or found
twice.

Files that are deleted meanwhile are noticed within a second, with a warning, and so are those
that a reader has found to be damaged; what they held is indexed again. From a broker's run on the
directory until our writer has started again, its log is the broker's to index: nothing is written, to
index files or to the page.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.checkpoint.trust import Trust, trust_in
from storage.errors import StoreBusy, StoreFull
from storage.index.checkpointer import IndexCheckpointer
from storage.index.consistency import agrees_with_log
from storage.index.directory import IndexDirectory
from storage.index.follower import IndexFollower, LogReader
from storage.index.index_file import IndexFileDamaged
from storage.index.recovery import recover_foreign, recover_from_slot, recover_without_slot
from storage.index.repair import IndexRepair
from storage.view.index.index_file import IndexShape

if TYPE_CHECKING:
    from pathlib import Path

    from storage.checkpoint.positions import CheckpointFile
    from storage.clock import Clock
    from storage.files.filesystem import FileSystem
    from storage.view.layout import StorePaths

_LOG: Final = logging.getLogger(__name__)
LOOK_S: Final = 1.0  # between looks whether files were deleted
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
        new_name: Callable[[], str] | None,
    ) -> None:
        self._clock = clock
        self._checkpoint = checkpoint
        self._unclean = unclean
        self._log = LogReader(filesystem, paths.commit_log)
        self._directory = IndexDirectory(
            filesystem, paths.index, shape,
            checksums=paths.index_checksums, now_ms=clock.now_ms, new_name=new_name,
        )  # fmt: skip
        self._checkpointer = IndexCheckpointer(
            checkpoint, self._directory, clock=clock, interval_ms=durable_interval_ms
        )
        self._follower: IndexFollower | None = None
        self._published_offset = 0
        self._trust: Trust | None = None  # in the page, when it was last looked at
        self._session = 0
        self._left: bytes | None = None  # of the last file: its header after our last put
        self._looked_at = clock.monotonic()
        self.goes_on = False
        """Whether files are being repaired or checked, and more of that can be done at once."""
        self._is_asked = False  # whether all files are to be checked at the next look
        self._cleaned_offset = 0  # where the log began when files were last deleted with it
        self._repair = IndexRepair(
            filesystem, self._directory, self._log, clock,
            scrub_interval_ms=scrub_interval_ms, scrub_bytes_per_s=scrub_bytes_per_s,
        )  # fmt: skip

    @property
    def position(self) -> int:
        """End of the records whose keys can be found, as published; 0 before the first step."""
        return self._published_offset if self._follower is not None else 0

    @property
    def durable_offset(self) -> int:
        """End of what the checkpoint says is durably in the index; -1 before it does."""
        return self._checkpointer.durable_offset

    @property
    def due_in_ms(self) -> float:
        """How long until the index is to be synced again; 0 or less when it is time."""
        return self._checkpointer.due_in_ms

    @property
    def file_count(self) -> int:
        """How many index files there are."""
        return len(self._directory.paths)

    @property
    def damaged_count(self) -> int:
        """How many files were found to be damaged since the start."""
        return self._repair.found_count

    @property
    def is_repaired(self) -> bool:
        """Whether no file is known to be damaged, or has been asked for and not been looked at yet."""
        return self._repair.is_done and not self._is_asked

    def check_all(self) -> None:
        """Have every block of every file checked at the next step."""
        self._is_asked = True
        self._looked_at = -math.inf

    @property
    def scrub_progress(self) -> str:
        """The file that is being checked and how far, empty between two."""
        return self._repair.scrub_progress

    @property
    def key_count(self) -> int:
        """How many index entries there are in all files."""
        return sum(max(0, header.next_entry - 1) for header in self._directory.headers())

    def step(self) -> bool:
        """Index what is confirmed, one chunk of the log at most; return whether there was any.

        Raises StoreFull when the disk has no room; call it again.
        """
        try:
            return self._try_step()
        except FileNotFoundError:
            if not self._directory.lost():
                raise
            self._looked_at = -math.inf
            return True
        except IndexFileDamaged:
            self._looked_at = -math.inf
            self._repair.suspect(self._directory.paths[-1:])
            return True

    def _try_step(self) -> bool:
        trust = self._look_at_page()
        if not trust.durable.trusted:
            self._follower = None  # a broker may be putting to the files
        if not trust.is_live:
            return False
        limit = self._checkpoint.confirm_offset
        if self._follower is not None and self._clock.monotonic() - self._looked_at >= LOOK_S:
            self._replace_bad(limit)
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
            self._left = self._last_header()
            self._checkpoint.publish_indexed(follower.position)
            self._published_offset = follower.position
        if self._checkpointer.is_due:
            self.sync()
        else:
            self._checkpointer.write_synced()
        self.goes_on = self._repair_some()
        return self.goes_on or moved

    def _look_at_page(self) -> Trust:
        """Return what of the checkpoint page holds now."""
        trust = self._trust
        if trust is None or trust.head != self._checkpoint.head:
            trust = self._trust = trust_in(self._checkpoint)
        return trust

    def _repair_some(self) -> bool:
        """Repair or check a little of the older files; return whether there is more to do at once."""
        follower = self._follower
        if follower is None or follower.is_interrupted:
            return False
        goes_on, replaced = self._repair.step(
            min_commit_offset=self._min_commit_offset, position=follower.position
        )
        if replaced:  # readers open their files again with a new session
            self._checkpoint.start_indexer(indexed_offset=self._published_offset)
        elif goes_on:
            self._looked_at = -math.inf
        return goes_on

    def _replace_bad(self, end_commit_offset: int) -> None:
        """Index again from the first file on that is damaged or was deleted."""
        self._looked_at = self._clock.monotonic()
        if self._is_asked:
            self._repair.suspect(self._directory.paths)
            self._is_asked = False
        bad = sorted({*self._give_up_lost(), *self._give_up_damaged()})
        if not bad:
            self._drop_expired()
            return
        self._begin(
            recover_without_slot(
                self._directory,
                self._log,
                file_name=int(bad[0].name),
                min_commit_offset=self._min_commit_offset,
                end_commit_offset=end_commit_offset,
            )
        )

    def _drop_expired(self) -> None:
        """Delete the files of whose records the log has none any more, but never the newest."""
        min_commit_offset = self._min_commit_offset
        if min_commit_offset <= self._cleaned_offset:
            return
        expired = self._directory.expired(min_commit_offset)
        if expired:
            self._repair.forget_work()
            try:
                for path in expired:
                    self._directory.drop(path)
                    _LOG.info("deleted %s: the log has its messages no more", path)
            finally:
                self._checkpoint.start_indexer(indexed_offset=self._published_offset)
        self._cleaned_offset = min_commit_offset

    def _give_up_lost(self) -> list[Path]:
        """Forget the files that were deleted since they were listed, with a warning each."""
        lost = self._directory.lost()
        if lost:
            for path in lost:
                _LOG.warning("index file %s is gone; what it held is indexed again", path)
            self._follower = None  # until the files are right again
            self._directory.give_up(lost)
        return lost

    def _give_up_damaged(self) -> list[Path]:
        """Delete the newest file if it is damaged; older ones are answered from until replaced."""
        newest = self._repair.find_damaged()
        if newest:
            self._follower = None  # until the files are right again
            self._directory.give_up(newest)
        return newest

    def _prepare(self, end_commit_offset: int) -> None:
        """Find out where to index from: at the start, and when a writer has recovered the log."""
        self._session = self._look_at_page().session
        self._checkpointer.start_session()
        if (
            self._follower is not None
            and self._follower.position <= end_commit_offset
            and self._is_as_left()
            and self._ends_like_the_log()
        ):
            return
        self._give_up_lost()
        self._directory.refresh()
        self._repair.suspect(self._directory.unlike_noted())
        position = None
        slot = self._checkpointer.load()
        if slot is not None:
            position = recover_from_slot(
                self._directory,
                self._log,
                slot,
                min_commit_offset=self._min_commit_offset,
                end_commit_offset=end_commit_offset,
            )
        if position is None:
            position = recover_foreign(
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
        self._repair.forget_work()
        self._directory.drop_orphans()
        self._follower = IndexFollower(
            self._log, position, self._directory, on_filled=self._checkpointer.take_full
        )
        self._checkpointer.begin(position)
        self._left = self._last_header()
        self._checkpoint.start_indexer(indexed_offset=position)
        self._published_offset = position

    @property
    def _min_commit_offset(self) -> int:
        return max(self._checkpoint.min_commit_offset, self._log.first_offset)

    def _last_header(self) -> bytes | None:
        last = self._directory.last
        return None if last is None else last.header_bytes

    def _is_as_left(self) -> bool:
        """Whether only we have put to the files; a broker does before its fields say that it ran."""
        return self._directory.is_listed() and self._last_header() == self._left

    def _ends_like_the_log(self) -> bool:
        last = self._directory.last
        return last is None or agrees_with_log(self._log, last.header)

    def sync(self) -> None:
        """Make the index durable up to ``position``; the checkpoint says so once the log is durable there."""
        follower = self._follower
        if follower is not None:
            self._checkpointer.checkpoint(None if follower.is_interrupted else follower.position)

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
        if self._follower is not None:
            self._leave(self._follower)
            self._checkpoint.stop_indexer()

    def _leave(self, follower: IndexFollower) -> None:
        """Sync all, and checkpoint it: at once where the writer has stopped, else when it has flushed."""
        self._checkpointer.write_synced()
        if follower.is_interrupted:
            return
        self._checkpointer.sync(follower.position)
        deadline = self._clock.monotonic() + LOG_FLUSH_S
        while (
            self._checkpoint.flushed_offset < follower.position
            and self._checkpoint.writer_is_writable
            and self._clock.monotonic() < deadline
        ):
            threading.Event().wait(LOG_FLUSH_LOOK_S)
        self._checkpointer.write_synced(clean=True)

    def close(self) -> None:
        """Close the files; nothing is synced."""
        self._repair.close()
        self._directory.close()
        self._log.close()
