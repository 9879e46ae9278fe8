"""The modes of files and directories that are made in a store: for their owner alone, unless they are shared."""

from __future__ import annotations

from pathlib import Path

_shared = False


def share(*, shared: bool) -> None:
    """Set whether what this process makes from now on may be opened by other users."""
    global _shared  # noqa: PLW0603  as a umask is the process's
    _shared = shared


def are_shared() -> bool:
    """Return whether this process shares what it makes."""
    return _shared


def is_shared(path: Path) -> bool:
    """Return whether the nearest directory that is there, of a path, is shared.

    A task on another machine makes its files as the job has made their directory.
    """
    for directory in (path, *path.parents):
        if directory.is_dir():
            return bool(directory.stat().st_mode & 0o077)
    return False


def of_file(*, shared: bool) -> int:
    """Return the mode of a new file; the process's umask takes from it."""
    return 0o666 if shared else 0o600


def of_directory(*, shared: bool) -> int:
    """Return the mode of a new directory; the process's umask takes from it."""
    return 0o777 if shared else 0o700


def make_directory(path: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
    """Make one as this process makes them."""
    path.mkdir(of_directory(shared=_shared), parents=parents, exist_ok=exist_ok)
