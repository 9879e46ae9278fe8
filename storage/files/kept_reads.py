"""What was read of files and directories, read again only where the file system says that they changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from storage.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from storage.clock import Clock
    from storage.files.protocol import FileStatus, ReadFileSystem

T = TypeVar("T")


class KeptReads(Generic[T]):
    """The results of ``read`` by path. Safe to use from several threads."""

    def __init__(
        self, filesystem: ReadFileSystem, read: Callable[[Path], T], clock: Clock | None = None
    ) -> None:
        self._filesystem = filesystem
        self._read = read
        self._clock = clock or SystemClock()
        self._kept: dict[Path, tuple[FileStatus, T]] = {}

    def get(self, path: Path) -> T:
        """Return what ``read`` returns of a path now, or returned since its last change.

        Nothing is kept of what changed a moment ago: it may change again without its status doing so.
        Raises FileNotFoundError, and what ``read`` raises.
        """
        status = self._filesystem.status(path)  # first: what changes after it is seen the next time
        kept = self._kept.get(path)
        if kept is not None and kept[0] == status:
            return kept[1]
        result = self._read(path)
        if status.has_settled(self._clock.now_ms()):
            self._kept[path] = status, result
        else:
            self._kept.pop(path, None)
        return result
