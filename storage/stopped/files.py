"""The files of a store that a job makes: written in parallel, each part at its place.

Tasks may run again, or twice at once, and then write the same bytes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from storage import modes
from storage.files.filesystem import FileSystem
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import file_name
from storage.view.layout import StorePaths

if TYPE_CHECKING:
    from storage.files.filesystem import Buffer, File


def make_log_files(root: Path, end_offset: int, file_size: int) -> None:
    """Create the log files of a new store up to ``end_offset``, of zeros; nothing is durable."""
    filesystem, log = _as_its_directory(root), StorePaths(root).commit_log
    filesystem.make_directory(log)
    for start in range(0, end_offset, file_size):
        filesystem.create(log / file_name(start), file_size, allocate=False).close()


def write_log(root: Path, commit_offset: int, data: Buffer, file_size: int) -> None:
    """Write bytes at a commit offset, all within one file; durable on return.

    Whoever makes the store syncs its directories last, and may do so on another machine.
    """
    position = commit_offset % file_size
    path = StorePaths(root).commit_log / file_name(commit_offset - position)
    file = FileSystem().open(path, writable=True)
    try:
        file.pwrite(data, position)
        file.sync()
    finally:
        file.close()


def write_queue(directory: Path, queue_offset: int, units: bytes, file_size: int) -> None:
    """Write units of 20 bytes from a queue offset on to the files of a queue; nothing is durable.

    Files that are not there are made, of zeros.
    """
    _as_its_directory(directory).make_directory(directory, durable=False)
    data, position = memoryview(units), queue_offset * UNIT_SIZE
    while data:
        start = position - position % file_size
        room = min(len(data), start + file_size - position)
        file = _opened(directory / file_name(start), file_size)
        try:
            file.pwrite(data[:room], position - start)
        finally:
            file.close()
        data, position = data[room:], position + room


def make_work_directory(path: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
    """Make the directory that a job fills; its tasks make their files for whom it is made."""
    modes.make_directory(path, parents=parents, exist_ok=exist_ok)


def _as_its_directory(path: Path) -> FileSystem:
    return FileSystem(shared=modes.is_shared(path))


def _opened(path: Path, size: int) -> File:
    """Open a file for writing that other tasks may be making at the same time."""
    filesystem = _as_its_directory(path)
    with suppress(FileNotFoundError):
        return filesystem.open(path, writable=True)
    with suppress(FileExistsError):
        return filesystem.create(path, size, allocate=False)
    return filesystem.open(path, writable=True)


def without_file(path: Path) -> FileSystem:
    """Remove a file that is to be made anew; return the file system to make it in. Its directory is made."""
    filesystem = _as_its_directory(path)
    filesystem.make_directory(path.parent)
    with suppress(FileNotFoundError):
        filesystem.unlink(path)
    return filesystem


def remove_files(directory: Path) -> None:
    """Remove the files in a directory, which stays; nothing is durable."""
    filesystem = FileSystem()
    for entry in filesystem.list_directory(directory):
        filesystem.unlink(directory / entry.name)
