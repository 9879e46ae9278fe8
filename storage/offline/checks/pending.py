"""What says how far delayed messages and transactions are, and what producers have sent: our files of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.findings import WARNING, Finding
from storage.producers.loading import damaged_window_files
from storage.timers.file_damage import damaged_timer_files
from storage.transactions.progress import damaged_progress_files

if TYPE_CHECKING:
    from storage.files.filesystem import ReadFileSystem
    from storage.view.layout import StorePaths

READ_TRIES: Final = 3  # of files that a running store writes


def pending_files(disk: ReadFileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield which of them are not whole, of a running store too."""
    for folder, kind, look in (
        (paths.timers, kinds.TIMER_FILE, damaged_timer_files),
        (paths.config, kinds.TRANSACTION_FILE, damaged_progress_files),
        (paths.config, kinds.PRODUCER_FILE, damaged_window_files),
    ):
        for name, problem in _lasting(partial(look, disk, folder)):
            file = str((folder / name).relative_to(paths.root))
            yield Finding(severity=WARNING, kind=kind, file=file, message=problem)


def _lasting(look: Callable[[], dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what each of some looks finds."""
    found = look()
    for _ in range(READ_TRIES if found else 0):
        again = look()
        found = {name: again[name] for name in found if name in again}
    yield from found.items()
