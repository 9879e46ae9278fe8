"""Looking at a store again and again: cheap while nothing changes, and never past its end.

A look at an idle store is the status of its log and one read of its checkpoint page. Of a store whose
writer is ours the page says how far it may be read; the log of any other is walked on from where it
ended before.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from storage.errors import NotAStore
from storage.files.directory_lock import has_writer
from storage.view.bounds import Bounds
from storage.view.log.end import end_after, end_of_log
from storage.view.store_view import StoreLocation, StoreView

HEAD_SIZE: Final = 8
SETTLE_TRIES: Final = 100
SETTLE_S: Final = 0.01


class StoreWatch:
    """Finds out whether a store changed, and how far it may be read now."""

    def __init__(self, store: StoreLocation) -> None:
        self.store = store
        view = StoreView(store)
        self._paths, self._filesystem = view.paths, view.filesystem
        self._seen: tuple[object, ...] | None = None
        self._files: StoreView | None = None
        self._foreign = False
        self._silent_session: int | None = None  # the page stayed a broker's for all of a wait

    @property
    def is_foreign(self) -> bool:
        """Whether no writer of ours speaks for the store; known after a poll."""
        return self._foreign

    @property
    def store_id(self) -> str | None:
        """What our writer named the store."""
        return StoreView(self.store).checkpoint.durable.store_id.hex() or None

    def poll(self) -> StoreView:
        """Return the store with its bounds: the same object while nothing changed.

        Of a foreign store ``queued_offset`` is not looked for: it is the end. Raises NotAStore.
        """
        signature, files = self._signature(), self._files
        if files is not None and signature == self._seen:
            following = files.log.bytes_at(files.bounds.end_offset, HEAD_SIZE)
            if not self._foreign or not any(following or b""):
                return files
            found = self._settle()
            if found.bounds[:2] == files.bounds[:2]:  # the third may be known better by now
                return files
        else:
            found = self._settle()
        self._files, self._seen = found, signature
        return found

    def _signature(self) -> tuple[object, ...]:
        try:
            log_changed = self._filesystem.status(self._paths.commit_log).modified_ns
        except FileNotFoundError:
            raise NotAStore(
                f"{self.store}: the store has disappeared: there is no directory"
                f" {self._paths.commit_log.name!r};"
                " put it back and start the query again"
            ) from None
        with suppress(FileNotFoundError):
            return log_changed, self._filesystem.read_bytes(self._paths.checkpoint)
        return log_changed, b""

    def _settle(self) -> StoreView:
        """Look until the end is not before the last one, or stays there.

        A writer that starts, or is between two words of the page, shows less than there is for a
        moment.
        """
        before = self._files.bounds if self._files is not None else None
        for _ in range(SETTLE_TRIES):
            files = self._look()
            is_less = before is not None and files.bounds.end_offset < before.end_offset
            if not is_less and not (self._foreign and self._has_writer()):
                break
            time.sleep(SETTLE_S)
        else:
            self._silent_session = self._live_session()
        return files

    def _has_writer(self) -> bool:
        """Return whether the store is locked and a writer of ours has published in this boot.

        A process id would mean nothing here if that writer runs in another container. After a wait in
        vain the lock is a broker's, and the words are those of the writer before it.
        """
        session = self._live_session()
        return session not in (None, self._silent_session) and has_writer(self.store.root)

    def _live_session(self) -> int | None:
        live = StoreView(self.store).checkpoint.live_words
        return None if live is None else live["session"]

    def _look(self) -> StoreView:
        files = StoreView(self.store)
        stated = files.stated_bounds()
        self._foreign = stated is None
        if stated is not None:
            self._silent_session = None
        if stated is None:
            end = self._end_of(files)
            start = files.log.start_offset if files.log.entries else end
            stated = Bounds(start, end, end)
        return files.with_bounds(stated)

    def _end_of(self, files: StoreView) -> int:
        known = self._files.bounds.end_offset if self._files is not None else None
        if known is None or known < files.log.start_offset:
            return end_of_log(files.log)
        return end_after(files.log, known)
