"""The decision of a commit, ``intent.json``: from here on it will be completed, whatever happens.

It is kept twice and with a checksum (``storage.tables.own_document``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.errors import DamagedLedger
from storage.tables.own_document import load_document, save_document

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

INTENT_FILE: Final = "intent.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The decision: which attempts, in which order; all their records lie after ``log_offset``."""

    app_id: str
    one_off: bool
    attempts: tuple[str, ...]
    log_offset: int

    def to_document(self) -> dict[str, object]:
        """Return the document's fields."""
        return {
            "appId": self.app_id,
            "oneOff": self.one_off,
            "attempts": self.attempts,
            "logOffset": self.log_offset,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Intent:
        """Read the document's fields. Raises ValueError, KeyError or TypeError if they are not an intent's."""
        return cls(
            app_id=str(document["appId"]),
            one_off=bool(document["oneOff"]),
            attempts=tuple(str(attempt) for attempt in document["attempts"]),
            log_offset=int(document["logOffset"]),
        )


def save_intent(filesystem: FileSystem, directory: Path, intent: Intent) -> None:
    """Write the decision; durable on return. Raises StoreFull, OSError."""
    save_document(filesystem, directory / INTENT_FILE, intent.to_document())


def load_intent(filesystem: FileSystem, directory: Path) -> Intent | None:
    """Return the decision, None if there is none.

    Raises DamagedLedger if neither of its files is whole, OSError and StoreBusy if a file before the whole one
    cannot be read now.
    """
    path = directory / INTENT_FILE
    try:
        return load_document(filesystem, path, Intent.from_document)
    except ValueError as error:
        raise DamagedLedger(
            f"{path} cannot be read, nor its .bak, so which records belong into the log is not known:"
            f" {error}. Restore one of the two, or remove their directory to give the staged commit up;"
            " then start the writer again"
        ) from error
