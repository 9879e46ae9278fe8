"""Which files of delayed messages are damaged or gone; the store may be running."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from storage.format.timers.files import decode_rows
from storage.tables.own_document import damaged_files, file_problem, load_document
from storage.timers.broker_check import TIMER_CHECK_FILE, OwnChecks, broker_progress
from storage.timers.progress import PROGRESS_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import ReadFileSystem
    from storage.view.layout import StorePaths


def damaged_timer_files(filesystem: ReadFileSystem, directory: Path) -> dict[str, str]:
    """Return what is wrong with files in ``timers/``, by name.

    A start finds without them what is pending: it reads the records of delayed messages again.
    """
    path = directory / PROGRESS_FILE
    found = damaged_files(filesystem, path, _names)
    try:
        names = load_document(filesystem, path, _names) or []
    except (OSError, ValueError):
        return found
    for name in names:
        try:
            decode_rows(filesystem.read_bytes(directory / name))
        except FileNotFoundError:
            found[name] = f"is missing; {PROGRESS_FILE} names it"
        except (OSError, ValueError) as error:
            found[name] = file_problem(error)
    return found


def damaged_check(filesystem: ReadFileSystem, paths: StorePaths, *, now_ms: int) -> dict[str, str]:
    """Return what is wrong with ``config/timercheck``, under its name: a start goes by our own files then."""
    own = None
    with suppress(OSError, ValueError):  # named by others
        own = load_document(filesystem, paths.timers / PROGRESS_FILE, OwnChecks.parsed)
    try:
        held = filesystem.read_bytes(paths.config / TIMER_CHECK_FILE)
        broker_progress(held, own, now_ms=now_ms)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {TIMER_CHECK_FILE: file_problem(error)}
    return {}


def _names(document: dict[str, Any]) -> list[str]:
    return [str(name) for name, _ in document["blocks"]]
