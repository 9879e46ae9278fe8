"""The journal of leases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.errors import UnsupportedFormat
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.findings import WARNING, Finding
from storage.format.lease_journal import LEASE_DIRECTORY
from storage.leases.journal import load_journal

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.view.layout import StorePaths

_ANY_TIME: Final = 0  # what is due when is not looked at


def lease_journal(
    disk: FileSystem, paths: StorePaths, *, is_locked: bool = False
) -> Iterator[Finding]:
    """Yield what of the journal cannot be read; nothing while a reader writes it.

    With ``is_locked`` the caller holds the reader's lock.
    """
    if not is_locked and DirectoryLock.is_held(paths.root, LockRole.CONSUMER_OFFSETS):
        return
    try:
        _, problems = load_journal(disk, paths.root / LEASE_DIRECTORY, _ANY_TIME)
    except UnsupportedFormat as error:
        problems = [("", str(error))]
    for name, problem in problems:
        yield Finding(
            severity=WARNING, kind=kinds.LEASE_JOURNAL,
            file=f"{LEASE_DIRECTORY}/{name}" if name else LEASE_DIRECTORY, message=problem,
        )  # fmt: skip
