"""Holding the locks of a stopped store for as long as its files are changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from storage.errors import StoreLocked
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.files.filesystem import FileSystem

_HOLDERS: Final = {
    LockRole.WRITER: "a writer or a broker",
    LockRole.INDEXER: "an indexer",
    LockRole.CONSUMER_OFFSETS: "a reader",
}


@contextmanager
def stopped_store(directory: Path) -> Iterator[None]:
    """Hold a store so that neither a broker nor a service of ours opens it meanwhile.

    Raises StoreLocked if one has it open; OSError if the directory cannot be written to.
    """
    with ExitStack() as held:
        for role, holder in _HOLDERS.items():
            try:
                held.enter_context(DirectoryLock.acquire(FileSystem(), directory, role))
            except StoreLocked:
                raise StoreLocked(
                    f"{directory} is in use by {holder}; stop it first, or work on a copy"
                ) from None
        yield
