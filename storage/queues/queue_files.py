"""Files of consume queues: the open ones, at most so many, and what of them is not yet durable.

Files are opened under ``guard``, and a file counts as dirty before anyone can learn that a unit in it
counts as dispatched: a sync that starts after reading the dispatched position covers it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.errors import StoreBusy
from storage.files import open_files
from storage.files.mapped_file_queue import file_path

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import File, FileSystem

OPEN_FILES_MAX: Final = (
    16_384  # less where a process may have few; opening one costs as much as forty writes
)
SYNCED_ONE_BY_ONE_MAX: Final = (
    32  # files and directories; for more, one sync of the file system takes less
)


class OpenQueueFiles:
    """Files of ``file_size`` bytes below one directory, each by its path."""

    def __init__(self, filesystem: FileSystem, directory: Path, *, file_size: int) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.file_size = file_size
        self.guard = threading.RLock()
        self.sync_count = 0  # between two syncs a file that was written to stays dirty
        self.is_cut = False  # whether bytes of files went, or files: more than units were written
        self._open: OrderedDict[Path, File] = OrderedDict()
        self._open_max = open_files.at_most(OPEN_FILES_MAX, share=4)
        self._closes_newest = False
        self._dirty_files: dict[Path, None] = {}  # in the order in which they became so
        self._dirty_directories: dict[Path, None] = {}

    def open_for_writing(self, path: Path, *, exists: bool) -> File:
        """Return a file, created as one hole if it does not exist, and mark it dirty."""
        file = self._open.get(path)
        if file is None:
            if exists:
                file = self.filesystem.open(path, writable=True)
            else:
                self.filesystem.make_directory(path.parent, durable=False)
                file = self.filesystem.create(path, self.file_size, allocate=False)
                self.distrust_names(path.parent)
            self._keep(path, file)
        with self.guard:
            self._dirty_files[path] = None
        return file

    def open_for_reading(self, path: Path) -> File:
        """Return an existing file."""
        file = self._open.get(path)
        if file is None:
            file = self.filesystem.open(path, writable=True)
            self._keep(path, file)
        return file

    def distrust(self, directory: Path, begin: int, end: int) -> None:
        """Have the next sync cover positions ``[begin, end)`` of a queue, and the names in its directory."""
        with self.guard:
            for start in range(begin - begin % self.file_size, end, self.file_size):
                self._dirty_files[file_path(directory, start)] = None
            self.distrust_names(directory)

    def data_size(self, path: Path) -> int:
        """Return up to where a file has data: what follows is one hole."""
        file = self.open_for_reading(path)
        end = 0
        while end < self.file_size:
            begin, following = file.next_data(end)
            if begin >= self.file_size:
                break
            end = following
        return end

    def _keep(self, path: Path, file: File) -> None:
        if len(self._open) >= self._open_max:
            # By turns: writes that go round one file more than fit would find none open if the oldest always went.
            self._closes_newest = not self._closes_newest
            self._open.popitem(last=self._closes_newest)[1].close()
        self._open[path] = file

    def has_open(self, path: Path, file: File) -> bool:
        """Whether this file is the open one of its path."""
        return self._open.get(path) is file

    def distrust_names(self, directory: Path) -> None:
        """Have the next sync cover the names in a queue's directory, and its own."""
        with self.guard:
            for path in (self.directory, directory.parent, directory):
                self._dirty_directories[path] = None

    def repair_length(self, path: Path, size: int) -> None:
        """Give a file the one length a broker accepts; what a short one lost reads as zeros."""
        self.is_cut = True
        content = b""
        if size > self.file_size:
            file = self.filesystem.open(path, writable=False)
            content = file.pread(self.file_size, 0)
            file.close()
            self.filesystem.unlink(path)
            file = self.filesystem.create(path, self.file_size, allocate=False)
            file.pwrite(content, 0)
        else:
            file = self.filesystem.open(path, writable=True)
            file.extend(self.file_size)
        file.close()
        with self.guard:
            self._dirty_files[path] = None
            self._dirty_directories[path.parent] = None

    def let_go(self, path: Path) -> None:
        """Close a file that goes: nothing of it is to be synced."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()
        with self.guard:
            self._dirty_files.pop(path, None)

    def remove(self, path: Path) -> None:
        """Unlink a file."""
        self.is_cut = True
        self.let_go(path)
        self.filesystem.unlink(path)
        with self.guard:
            self._dirty_directories[path.parent] = None

    def zero_tail(self, path: Path, position: int) -> None:
        """Make a file read as zeros from ``position`` on, if it does not already."""
        file = self.open_for_reading(path)
        begin = end = position
        while end < self.file_size:  # a file is mostly a hole, which need not be read
            begin, end = file.next_data(end)
            if np.frombuffer(file.pread(end - begin, begin), np.uint8).any():
                self.is_cut = True
                file = self.open_for_writing(path, exists=True)
                file.zero(position, self.file_size - position)
                return

    def remove_directory(self, directory: Path) -> None:
        """Delete a directory with the files in it; the deletion is its parent's to make durable."""
        for file in self.filesystem.list_directory(directory):
            path = directory / file.name
            opened = self._open.pop(path, None)
            if opened is not None:
                opened.close()
            self.filesystem.unlink(path)
            with self.guard:
                self._dirty_files.pop(path, None)
        with self.guard:
            self._dirty_directories.pop(directory, None)
        self.filesystem.remove_directory(directory)

    def sync(self) -> None:
        """Make every unit written before the call durable. An OSError latches with the caller.

        Raises StoreBusy while a file cannot be opened; it may be called again.
        """
        with self.guard:
            self.sync_count += 1
            files, self._dirty_files = self._dirty_files, {}
            directories, self._dirty_directories = self._dirty_directories, {}
        try:
            if len(files) + len(directories) > SYNCED_ONE_BY_ONE_MAX:
                # Some file systems leave what they wrote in the device's cache: the syncs after it flush that.
                with suppress(FileNotFoundError):  # others have removed it, and all that is dirty
                    self.filesystem.sync_filesystem(self.directory)
                files, directories = dict.fromkeys(list(files)[-1:]), {self.directory: None}
            for path in list(files):
                self._sync_file(path)
                del files[path]
            for directory in list(directories):
                with suppress(FileNotFoundError):
                    self.filesystem.sync_directory(directory)
                del directories[directory]
        except StoreBusy:  # the rest is the next sync's
            with self.guard:
                self._dirty_files = {**files, **self._dirty_files}
                self._dirty_directories = {**directories, **self._dirty_directories}
            raise

    def _sync_file(self, path: Path) -> None:
        try:
            file = self.filesystem.open(path, writable=True)
        except FileNotFoundError:
            return  # its topic was deleted meanwhile
        try:
            file.sync()
        finally:
            file.close()

    def close(self) -> None:
        """Close every open file; nothing is synced."""
        while self._open:
            self._open.popitem()[1].close()
