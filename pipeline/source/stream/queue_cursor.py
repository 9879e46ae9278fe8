"""Queues looked at again and again: new directories, and units added to those known."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipeline.source.plan import QueueKey
from storage.clock import SystemClock
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.view.layout import QUEUE_DIRECTORY
from storage.view.queue_files import QueueFiles, Unit
from storage.view.store_view import StoreView

QUIET_NS: Final = 1_000_000_000  # a directory that changed so lately may change unseen
MS: Final = 1_000_000


class QueueDirectories:
    """Directories of the queues whose topic is wanted, listed again only where one changed."""

    def __init__(self, root: Path, wants: Callable[[str], bool]) -> None:
        self._root = root / QUEUE_DIRECTORY
        self._wants = wants
        self._listed: dict[Path, tuple[int, list[str]]] = {}
        self._clock = SystemClock()

    def find(self) -> dict[QueueKey, Path]:
        """Return the directory of each queue, sorted."""
        return {
            (topic, int(queue_id)): self._root / topic / queue_id
            for topic in sorted(filter(self._wants, self._names(self._root)))
            for queue_id in sorted(self._names(self._root / topic), key=_number)
            if queue_id.isdigit()
        }

    def _names(self, directory: Path) -> list[str]:
        try:
            changed = os.stat(directory).st_mtime_ns  # noqa: PTH116
            if directory in self._listed and self._listed[directory][0] == changed:
                return self._listed[directory][1]
            names = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
        except FileNotFoundError:
            return []
        quiet = self._clock.now_ms() * MS - changed > QUIET_NS
        self._listed[directory] = (changed if quiet else -1, names)
        return names


def _number(name: str) -> int:
    return int(name) if name.isdigit() else -1


@dataclass(frozen=True)
class QueueCursor:
    """Where the readable units of a queue lie, and how to find those that come."""

    directory: Path
    files: QueueFiles

    @classmethod
    def open(
        cls, store: StoreView, directory: Path, min_offset: int, end_offset: int
    ) -> QueueCursor:
        """Look for both ends."""
        files = QueueFiles.open(store.filesystem, directory, min_offset, end_offset)
        return cls(directory, files)

    def grown(self, min_offset: int, end_offset: int) -> QueueCursor:
        """Look for units added since, which point below ``end_offset``; ``begin`` stays."""
        found = self.files
        if found.begin == found.end:
            opened = QueueFiles.open(found.filesystem, self.directory, min_offset, end_offset)
            return QueueCursor(self.directory, opened)
        while True:
            found = replace(found, end=_end(found, end_offset))
            if found.end < found.files[-1].end_offset // UNIT_SIZE:
                break
            listed = QueueFiles.whole(found.filesystem, self.directory).files
            if listed == found.files:
                break
            found = replace(found, files=listed)
        return self if found == self.files else QueueCursor(self.directory, found)


def _end(queue: QueueFiles, end_offset: int) -> int:
    """Return the first offset from the end on that has no readable unit: steps that double, then halves."""

    def is_readable(unit: Unit) -> bool:
        offset, size, _ = unit
        if offset == 0 and size == PREFILL_SIZE:
            return True
        return size > 0 and 0 <= offset <= end_offset - size

    low, limit, step = queue.end, queue.files[-1].end_offset // UNIT_SIZE, 1
    while low < limit and is_readable(queue.unit(min(low + step, limit) - 1)):
        low, step = min(low + step, limit), 2 * step
    high = min(low + step, limit)
    while low < high:
        middle = (low + high) // 2
        if is_readable(queue.unit(middle)):
            low = middle + 1
        else:
            high = middle
    return low
