"""Who may do what in a store directory: one byte of its ``lock`` file for each role.

Byte 0 is what a broker locks; our writer takes the same, so neither opens what the other holds.
Bytes 1 and 2 are our own: the indexer, and the owner of consumer offsets.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from storage.errors import StoreLocked
from storage.files.record_locks import RecordLock, is_held

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem

LOCK_FILE: Final = "lock"
_CONTENT: Final = b"lock"


class LockRole(IntEnum):
    """The byte of the lock file that a role holds."""

    WRITER = 0
    INDEXER = 1
    CONSUMER_OFFSETS = 2


class DirectoryLock:
    """The right to act in one role on a store directory, held until ``release`` or process end."""

    def __init__(self, lock: RecordLock, directory: Path, role: LockRole) -> None:
        self._lock = lock
        self.directory = directory
        self.role = role

    @classmethod
    def acquire(cls, filesystem: FileSystem, directory: Path, role: LockRole) -> DirectoryLock:
        """Take the role's lock without waiting; the lock file stays for ever.

        ``filesystem`` then holds the directory: see ``FileSystem.hold``.

        Raises StoreLocked if any process holds it, a broker or a second store of this very
        process included; OSError if the directory cannot be written to.
        """
        filesystem.hold(directory)
        try:
            lock = filesystem.lock(directory / LOCK_FILE, int(role), _CONTENT)
        except StoreLocked as error:
            holder = (
                "a writer or a broker" if role is LockRole.WRITER else f"another {_NAMES[role]}"
            )
            raise StoreLocked(f"{directory} is in use by {holder}: {error}") from error
        return cls(lock, directory, role)

    @staticmethod
    def is_held(directory: Path, role: LockRole) -> bool:
        """Return whether any process acts in the role now; OSError if that cannot be seen."""
        return is_held(directory / LOCK_FILE, int(role))

    def release(self) -> None:
        """Give the role up; doing it twice is harmless."""
        self._lock.release()

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


_NAMES: Final = {
    LockRole.INDEXER: "indexer",
    LockRole.CONSUMER_OFFSETS: "reader that commits offsets",
}


def has_writer(directory: Path) -> bool:
    """Return whether a writer or a broker works on the store in a directory; False where that cannot be seen."""
    return _is_held_by_one_of(directory, LockRole.WRITER)


def is_in_use(directory: Path) -> bool:
    """Return whether a writer, a broker or an indexer works on the store in a directory."""
    return _is_held_by_one_of(directory, LockRole.WRITER, LockRole.INDEXER)


def _is_held_by_one_of(directory: Path, *roles: LockRole) -> bool:
    try:
        return any(DirectoryLock.is_held(directory, role) for role in roles)
    except OSError:
        return False
