"""Directories that are followed: held open, so that their files are found wherever they are renamed to.

A store that went on by its path after its directory had been renamed would make its next files in
another directory of that name, beside the store.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from storage.files.protocol import Anchor

_REMOVED: Final = " (deleted)"  # what the kernel adds to the path of a directory without a name


class AnchoredDirectories:
    """The directories that one file system follows, and what the kernel is told for paths below them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[str, _HeldDirectory] = {}  # by path, with a slash at its end

    def hold(self, directory: Path) -> OsAnchor:
        """Follow a directory until the anchor is released. Raises OSError if it cannot be opened."""
        prefix = os.path.join(directory, "")  # noqa: PTH118  with the slash at the end
        with self._guard:
            held = self._held.get(prefix)
            if held is None:
                held = _HeldDirectory(directory)
                self._held = {**self._held, prefix: held}  # others look without the lock
            held.anchor_count += 1
        return OsAnchor(self, prefix, held)

    def release(self, prefix: str, held: _HeldDirectory) -> None:
        """Take one anchor away; the last one lets go of the directory."""
        with self._guard:
            held.anchor_count -= 1
            if held.anchor_count == 0:
                self._held = {k: each for k, each in self._held.items() if k != prefix}
                held.close()

    def place_of(self, path: Path) -> tuple[str, int | None]:
        """Return the name that the kernel is given for a path, and the directory that it starts from."""
        text = os.fspath(path)
        for prefix, held in self._held.items():
            if text.startswith(prefix):
                return text[len(prefix) :], held.descriptor
            if len(text) == len(prefix) - 1 and prefix.startswith(text):
                return ".", held.descriptor
        return text, None


class OsAnchor(Anchor):
    """A hold on a directory of the operating system."""

    def __init__(self, directories: AnchoredDirectories, prefix: str, held: _HeldDirectory) -> None:
        super().__init__(held.directory)
        self._directories = directories
        self._prefix = prefix
        self._held: _HeldDirectory | None = held

    def place(self) -> Path | None:
        """Return where the directory is now, None if it was removed."""
        if self._held is None:
            return self.directory
        target = os.readlink(f"/proc/self/fd/{self._held.descriptor}")  # noqa: PTH115
        if target.endswith(_REMOVED) and os.fstat(self._held.descriptor).st_nlink == 0:
            return None
        return Path(target)

    def release(self) -> None:
        """Let go; doing it twice is harmless."""
        held, self._held = self._held, None
        if held is not None:
            self._directories.release(self._prefix, held)


class _HeldDirectory:
    descriptor = -1

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.anchor_count = 0
        self.descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
