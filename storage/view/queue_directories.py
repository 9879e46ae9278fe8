"""Which queues have a directory, looked at again and again: only directories that changed are listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.files.kept_reads import KeptReads
from storage.format.names import parse_file_name

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import ReadFileSystem
    from storage.view.queues.record_queues import QueueKey


class QueueDirectories:
    """Queues below ``directory``, a store's ``consumequeue``, whose topic is wanted."""

    def __init__(
        self, filesystem: ReadFileSystem, directory: Path, wants: Callable[[str], bool]
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._wants = wants
        self._names_in = KeptReads(filesystem, self._list)

    def find(self) -> list[QueueKey]:
        """Return topic and id of each queue, sorted."""
        return [
            (topic, queue_id)
            for topic in filter(self._wants, self._names(self._directory))
            for queue_id in self._queue_ids(topic)
        ]

    def _queue_ids(self, topic: str) -> list[int]:
        numbers = map(parse_file_name, self._names(self._directory / topic))
        return sorted(number for number in numbers if number is not None)

    def _names(self, directory: Path) -> list[str]:
        try:
            return self._names_in.get(directory)
        except FileNotFoundError:
            return []

    def _list(self, directory: Path) -> list[str]:
        return [
            entry.name for entry in self._filesystem.list_directory(directory) if entry.is_directory
        ]
