"""``config/deletedProgress.json``: the deleted topics of which groups have no progress any more.

Whoever keeps groups' offsets removes those in a topic that was deleted: one that is made again has other
messages at the same queue offsets, and groups would miss them. It may come to that when the topic is
there again, so it notes of which deletions it has done so: the topics, and the commit offsets of that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from storage.tables.own_document import load_document, save_document

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem

_LOG: Final = logging.getLogger(__name__)
DELETED_PROGRESS_FILE: Final = "deletedProgress.json"
_TOPICS: Final = "topics"


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

    def save(self, deletions: Mapping[str, int]) -> None:
        """Note the deletions that are done with; durable on return. Raises StoreFull."""
        save_document(self._filesystem, self._path, {_TOPICS: dict(deletions)})


def _parsed(document: dict[str, Any]) -> dict[str, int]:
    return {str(topic): int(offset) for topic, offset in document[_TOPICS].items()}
