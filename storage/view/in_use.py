"""Whether a store is in use: whether somebody holds a lock of it."""

from __future__ import annotations

from pathlib import Path

from storage.files.directory_lock import DirectoryLock, LockRole


def is_in_use(directory: Path) -> bool:
    """Return whether a writer, a broker or an indexer works on the store in a directory."""
    return has_writer(directory) or _is_held(directory, LockRole.INDEXER)


def has_writer(directory: Path) -> bool:
    """Return whether a writer or a broker works on the store in a directory."""
    return _is_held(directory, LockRole.WRITER)


def _is_held(directory: Path, role: LockRole) -> bool:
    try:
        return DirectoryLock.is_held(directory, role)
    except OSError:
        return False
