"""Which files of delayed messages are damaged or gone; the store may be running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.format.timers.files import decode_rows
from storage.journal.states import read_states
from storage.tables.own_document import file_problem
from storage.timers.broker_check import TIMER_CHECK_FILE, broker_progress
from storage.timers.progress import STATE

if TYPE_CHECKING:
    from storage.files.filesystem import ReadFileSystem
    from storage.view.layout import StorePaths


def damaged_timer_files(filesystem: ReadFileSystem, paths: StorePaths) -> dict[str, str]:
    """Return what is wrong with files in ``timers/``, by name.

    A start finds without them what is pending: it reads the records of delayed messages again.
    """
    document = read_states(filesystem, paths.journal).document(STATE) or {"blocks": ()}
    found = {}
    for name, _ in document["blocks"]:
        try:
            decode_rows(filesystem.read_bytes(paths.timers / name))
        except FileNotFoundError:
            found[name] = "is missing; the writer's journal names it"
        except (OSError, ValueError) as error:
            found[name] = file_problem(error)
    return found


def damaged_check(filesystem: ReadFileSystem, paths: StorePaths, *, now_ms: int) -> dict[str, str]:
    """Return what is wrong with ``config/timercheck``, under its name: a start goes by our own files then."""
    try:
        held = filesystem.read_bytes(paths.config / TIMER_CHECK_FILE)
        broker_progress(held, now_ms=now_ms)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {TIMER_CHECK_FILE: file_problem(error)}
    return {}
