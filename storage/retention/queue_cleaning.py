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
        self._released: list[Path] = []  # out of their queues, and still to be deleted
        self._is_counted = False  # whether the durable count may still be with units of those

    def way(self, min_commit_offset: int) -> Iterator[Path | None]:
        """Look at all queues of a log that begins there; yield each deleted file, None after a look at some.

        Nothing is yielded where there is nothing to do. After an error, begin a way again.
        """
        if self._is_counted:
            self._drop([])
        yield from self.finish()
        if min_commit_offset <= self._cleaned_offset:
            return
        queues, all_are_clean = self._queues.on_disk(), True
        while some := list(islice(queues, QUEUES_OF_A_STEP_MAX)):
            found = []
            for key in filter(self._has_several_files, some):
                try:
                    expired = self._queues.expired_files(key, min_commit_offset)
                except StoreError:  # of a full table of files: the next way looks again
                    all_are_clean = False
                else:
                    found += [] if expired is None else [expired]
            if found:
                self._drop(found)
            yield None
            yield from self.finish()
        if all_are_clean:
            self._cleaned_offset = min_commit_offset

    def finish(self) -> Iterator[Path]:
        """Delete the files that were taken out of their queues; yield each."""
        while self._released and not self._is_counted:
            path = self._released[0]
            with suppress(FileNotFoundError):
                self._queues.unlink(path)
            with suppress(FileNotFoundError):
                self._filesystem.sync_directory(path.parent)
            del self._released[0]
            yield path

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
