"""Which queues have a directory, looked at again and again: only directories that changed are listed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from storage.clock import SystemClock
from storage.view.layout import QUEUE_DIRECTORY
from storage.view.queues.record_queues import QueueKey

QUIET_NS: Final = 1_000_000_000  # a directory that changed so lately may change unseen
MS: Final = 1_000_000


class QueueDirectories:
    """Directories of the queues whose topic is wanted, listed again only where one changed."""

    def __init__(self, root: Path, wants: Callable[[str], bool]) -> None:
        self._root = root / QUEUE_DIRECTORY
        self._wants = wants
        self._listed: dict[Path, tuple[int, list[str]]] = {}
        self._clock = SystemClock()

    def find(self) -> list[QueueKey]:
        """Return topic and id of each queue, sorted."""
        return [
            (topic, int(queue_id))
            for topic in sorted(filter(self._wants, self._names(self._root)))
            for queue_id in sorted(self._names(self._root / topic), key=_number)
            if queue_id.isdigit()
        ]

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
