"""What processes note for each other about groups' offsets, in files of one document with a checksum.

``config/lostProgress.json`` has offsets after the ends of queues. A power cut may take the end of the
log. When a reader keeps the offsets by the time the writer has recovered, only it may change them, and
it may come to that when queues have long grown past those offsets. So the writer says which they are
before it takes messages, and whoever keeps the offsets lowers them before anything else.

``config/deletedProgress.json`` has the deleted topics of which groups have no progress any more.
Whoever keeps groups' offsets removes those in a topic that was deleted: one that is made again has
other messages at the same queue offsets, and groups would miss them. It may come to that when the topic
is there again, so it notes of which deletions it has done so: the topics, and the commit offsets of
that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from storage.tables.checked_json import MISSING, NOT_WHOLE, decode_checked, encode_checked

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem

_LOG: Final = logging.getLogger(__name__)
LOST_PROGRESS_FILE: Final = "lostProgress.json"
DELETED_PROGRESS_FILE: Final = "deletedProgress.json"
_LOST: Final = "lost"
_TOPICS: Final = "topics"

T = TypeVar("T")


class OffsetBeyond(NamedTuple):
    """A group's offset that lies after the end of its queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    end_offset: int


class ProgressNotes:
    """Both files of a store."""

    def __init__(self, filesystem: FileSystem, config_directory: Path) -> None:
        self._filesystem = filesystem
        self._lost_path = config_directory / LOST_PROGRESS_FILE
        self._deleted_path = config_directory / DELETED_PROGRESS_FILE

    def add_lost(self, found: Sequence[OffsetBeyond]) -> None:
        """Leave offsets for whoever keeps them, beside those left before; durable on return. Raises StoreFull."""
        lost = dict.fromkeys([*self.lost(), *found])
        self._save(self._lost_path, {_LOST: [list(each) for each in lost]})

    def lost(self) -> list[OffsetBeyond]:
        """Return the offsets that were left, oldest first."""
        return self._load(self._lost_path, _lost_in) or []

    def remove_lost(self) -> None:
        """Remove the file: all of it was done."""
        with suppress(FileNotFoundError):
            self._filesystem.unlink(self._lost_path)

    def deletions(self) -> dict[str, int] | None:
        """Return the deletions that are done with; None where nobody knows."""
        return self._load(self._deleted_path, _deletions_in)

    def save_deletions(self, deletions: Mapping[str, int]) -> None:
        """Note the deletions that are done with; durable on return. Raises StoreFull."""
        self._save(self._deleted_path, {_TOPICS: dict(deletions)})

    def _save(self, path: Path, document: Mapping[str, object]) -> None:
        self._filesystem.write_atomically(path, encode_checked(document), backup=False)

    def _load(self, path: Path, parse: Callable[[dict[str, Any]], T]) -> T | None:
        try:
            return parse(decode_checked(self._filesystem.read_bytes(path)))
        except MISSING:
            return None
        except NOT_WHOLE as error:
            _LOG.error("config/%s is damaged (%s) and left out", path.name, error)
            return None


def _lost_in(document: dict[str, Any]) -> list[OffsetBeyond]:
    return [
        OffsetBeyond(str(group), str(topic), int(queue_id), int(queue_offset), int(end_offset))
        for group, topic, queue_id, queue_offset, end_offset in document[_LOST]
    ]


def _deletions_in(document: dict[str, Any]) -> dict[str, int]:
    return {str(topic): int(offset) for topic, offset in document[_TOPICS].items()}
