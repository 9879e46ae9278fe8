"""``config/lostProgress.json``: offsets after the ends of queues, for who may lower them.

A power cut may take the end of the log. When a reader keeps the offsets by the time the writer has
recovered, only it may change them, and it may come to that when queues have long grown past those
offsets. So the writer says which they are before it takes messages, and whoever keeps the offsets lowers
them before anything else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.tables.own_document import BACKUP, load_document, save_document

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

_LOG: Final = logging.getLogger(__name__)
LOST_PROGRESS_FILE: Final = "lostProgress.json"
_LOST: Final = "lost"


class OffsetBeyond(NamedTuple):
    """A group's offset that lies after the end of its queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    end_offset: int


class LostProgress:
    """The file in a store's ``config``."""

    def __init__(self, filesystem: FileSystem, config_directory: Path) -> None:
        self._filesystem = filesystem
        self._path = config_directory / LOST_PROGRESS_FILE

    def add(self, found: Sequence[OffsetBeyond]) -> None:
        """Leave offsets for whoever keeps them, beside those left before; durable on return. Raises StoreFull."""
        lost = dict.fromkeys([*self.load(), *found])
        save_document(self._filesystem, self._path, {_LOST: [list(each) for each in lost]})

    def load(self) -> list[OffsetBeyond]:
        """Return what was left, oldest first; nothing where the file is damaged, which is logged."""
        if not any(map(self._filesystem.exists, self._files)):
            return []
        try:
            return load_document(self._filesystem, self._path, _parsed) or []
        except ValueError as error:
            _LOG.error("config/%s is damaged (%s) and left out", LOST_PROGRESS_FILE, error)
            return []

    def remove(self) -> None:
        """Remove the file: all of it was done."""
        for path in self._files:
            with suppress(FileNotFoundError):
                self._filesystem.unlink(path)

    @property
    def _files(self) -> tuple[Path, Path]:
        return self._path, self._path.with_name(self._path.name + BACKUP)


def _parsed(document: dict[str, Any]) -> list[OffsetBeyond]:
    return [
        OffsetBeyond(str(group), str(topic), int(queue_id), int(queue_offset), int(end_offset))
        for group, topic, queue_id, queue_offset, end_offset in document[_LOST]
    ]
