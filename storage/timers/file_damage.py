"""Which of our files of delayed messages are damaged or gone; the store may be running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.errors import StoreError
from storage.format.timers.files import decode_rows
from storage.tables.own_document import damaged_files, load_document
from storage.timers.progress import PROGRESS_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import ReadFileSystem


def damaged_timer_files(filesystem: ReadFileSystem, directory: Path) -> dict[str, str]:
    """Return what is wrong with files in ``timers/``, by name.

    A start finds without them what is pending: it reads the records of delayed messages again.
    """
    path = directory / PROGRESS_FILE
    found = {
        name: f"is damaged: {problem}"
        for name, problem in damaged_files(filesystem, path, _names).items()
    }
    try:
        names = load_document(filesystem, path, _names) or []
    except (OSError, ValueError):
        return found
    for name in names:
        try:
            decode_rows(filesystem.read_bytes(directory / name))
        except FileNotFoundError:
            found[name] = f"is missing; {PROGRESS_FILE} names it"
        except (OSError, ValueError, StoreError) as error:
            found[name] = f"is damaged: {error}"
    return found


def _names(document: dict[str, Any]) -> list[str]:
    return [str(name) for name, _ in document["blocks"]]
