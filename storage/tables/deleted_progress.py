"""``config/deletedProgress.json``: the deleted topics of which groups have no progress any more.

Whoever keeps groups' offsets removes those in a topic that was deleted: one that is made again has other
messages at the same queue offsets, and groups would miss them. It may come to that when the topic is
there again, so it notes of which deletions it has done so: the topics, and the commit offsets of that.
It notes too that it has saved progress of a group: the offsets' own files cannot say so once they are
removed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from storage.tables.own_document import load_document, save_document

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem, ReadFileSystem

_LOG: Final = logging.getLogger(__name__)
DELETED_PROGRESS_FILE: Final = "deletedProgress.json"
_TOPICS: Final = "topics"
_HAS_PROGRESS: Final = "hasProgress"


class DeletedProgress:
    """The file in a store's ``config``."""

    def __init__(self, filesystem: FileSystem, config_directory: Path) -> None:
        self._filesystem = filesystem
        self._path = config_directory / DELETED_PROGRESS_FILE

    def load(self) -> dict[str, int] | None:
        """Return the deletions that are done with; None where nobody knows."""
        try:
            return load_document(self._filesystem, self._path, _parsed)
        except ValueError as error:
            _LOG.warning("config/%s is damaged: %s", DELETED_PROGRESS_FILE, error)
            return None

    def save(self, deletions: Mapping[str, int], *, has_progress: bool = False) -> None:
        """Note the deletions that are done with; durable on return. Raises StoreFull.

        That groups have progress stays noted.
        """
        document: dict[str, object] = {_TOPICS: dict(deletions)}
        if has_progress or self.has_progress():
            document[_HAS_PROGRESS] = True
        save_document(self._filesystem, self._path, document)

    def has_progress(self) -> bool:
        """Return whether it is noted that progress of a group was saved."""
        return has_saved_progress(self._filesystem, self._path.parent)

    def note_progress(self) -> None:
        """Note that progress of a group was saved; durable on return. Raises StoreFull."""
        deletions = self.load()
        if deletions is not None and not self.has_progress():
            self.save(deletions, has_progress=True)


def has_saved_progress(filesystem: ReadFileSystem, config_directory: Path) -> bool:
    """Return whether progress of a group was saved in this store, as far as that is known."""
    with suppress(ValueError):
        path = config_directory / DELETED_PROGRESS_FILE
        return bool(load_document(filesystem, path, _progress_in))
    return False


def _progress_in(document: dict[str, Any]) -> bool:
    return document.get(_HAS_PROGRESS) is True


def _parsed(document: dict[str, Any]) -> dict[str, int]:
    return {str(topic): int(offset) for topic, offset in document[_TOPICS].items()}
