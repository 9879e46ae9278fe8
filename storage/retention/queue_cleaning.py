"""Files of consume queues whose records the log has no more: found, and deleted.

Order, so that a stop at any step leaves a directory that starts quickly and serves the same:

1. the files of the log are gone, durably;
2. the units of the queue files are taken out of the durable count of units;
3. the files go, a queue's oldest first, each durably before the next.

A start that finds files of step 3 still there counts without them; the next round deletes them.
A topic that is deleted, and created again, between two steps keeps its new files: a queue is the same
object all the way, and a file that a queue has is not deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import StoreError
from storage.files.mapped_file_queue import list_files

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.queues.queue_table import ExpiredFiles, QueueTable

QUEUES_OF_A_STEP_MAX: Final = 64

DropUnits = Callable[[Callable[[], int]], None]
"""Runs a function that releases queue files and returns how many units they held, while nothing is
dispatched; the durable count of units is without them on return."""


class QueueCleaning:
    """Ways through all queues of a store, one after the other; one thread at a time."""

    def __init__(self, filesystem: FileSystem, queues: QueueTable, drop_units: DropUnits) -> None:
        self._filesystem = filesystem
        self._queues = queues
        self._drop_units = drop_units
        self._cleaned_offset = 0  # up to which all queues are clean
        self._min_commit_offset = 0  # of the way that is under way
        self._left: Iterator[tuple[str, int]] | None = None
        self._passed_over = False  # a queue, on this way
        self._released: list[Path] = []  # out of their queues, and still to be deleted
        self._is_counted = False  # whether the durable count may still be with units of those

    def has_work(self, min_commit_offset: int) -> bool:
        """Return whether there is something to do for a log that begins there."""
        return (
            bool(self._released)
            or self._left is not None
            or min_commit_offset > self._cleaned_offset
        )

    def step(self, min_commit_offset: int) -> Path | None:
        """Look at some queues, or delete one file; return that file, None where none was deleted.

        Raises StopIteration at the end of a way. After an error the next step begins a way again.
        """
        try:
            return self._step(min_commit_offset)
        except (OSError, StoreError):
            self._left = None
            raise

    def _step(self, min_commit_offset: int) -> Path | None:
        if self._is_counted:
            self._drop([])
        if self._released:
            return self._delete(self._released[0])
        if self._left is None:
            self._left, self._passed_over = self._queues.on_disk(), False
            self._min_commit_offset = min_commit_offset
        some = list(islice(self._left, QUEUES_OF_A_STEP_MAX))
        if not some:
            self._left = None
            if not self._passed_over:
                self._cleaned_offset = self._min_commit_offset
            raise StopIteration
        several = [key for key in some if self._has_several_files(key)]
        found = list(self._expired(several))
        if found:
            self._drop(found)
        return None

    def finish(self) -> None:
        """Delete the files that were taken out of their queues."""
        while self._released and not self._is_counted:
            self._delete(self._released[0])

    def _delete(self, path: Path) -> Path:
        with suppress(FileNotFoundError):
            self._queues.unlink(path)
        with suppress(FileNotFoundError):
            self._filesystem.sync_directory(path.parent)
        return self._released.pop(0)

    def _has_several_files(self, key: tuple[str, int]) -> bool:
        directory = self._queues.directory / key[0] / str(key[1])
        return len(list_files(self._filesystem, directory)) > 1

    def _drop(self, found: list[ExpiredFiles]) -> None:
        def release() -> int:
            unit_count = 0
            for expired in found:
                paths, units = self._queues.release_files(expired)
                self._released.extend(paths)
                unit_count += units
            return unit_count

        self._is_counted = True
        self._drop_units(release)
        self._is_counted = False

    def _expired(self, keys: list[tuple[str, int]]) -> Iterator[ExpiredFiles]:
        for key in keys:
            try:
                expired = self._queues.expired_files(key, self._min_commit_offset)
            except StoreError:  # of a full table of files: the next round looks again
                self._passed_over = True
            else:
                if expired is not None:
                    yield expired
