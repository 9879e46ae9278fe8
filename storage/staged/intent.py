"""The decision of a commit, ``intent.json``: from here on it will be completed, whatever happens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import StoreFailed

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


def save_intent(filesystem: FileSystem, directory: Path, intent: Intent) -> None:
    """Write the decision; durable on return. Raises StoreFull, OSError."""
    document = {
        "appId": intent.app_id,
        "oneOff": intent.one_off,
        "attempts": intent.attempts,
        "logOffset": intent.log_offset,
    }
    filesystem.write_atomically(
        directory / INTENT_FILE, json.dumps(document).encode(), backup=False
    )


def load_intent(filesystem: FileSystem, directory: Path) -> Intent | None:
    """Return the decision, None if there is none. Raises StoreFailed if it cannot be read."""
    path = directory / INTENT_FILE
    try:
        document = json.loads(filesystem.read_bytes(path))
        return Intent(
            app_id=str(document["appId"]),
            one_off=bool(document["oneOff"]),
            attempts=tuple(str(attempt) for attempt in document["attempts"]),
            log_offset=int(document["logOffset"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreFailed(
            f"{path} cannot be read, so which records belong into the log is not known: {error}."
            " Restore it, or remove its directory to give the staged commit up"
        ) from error
