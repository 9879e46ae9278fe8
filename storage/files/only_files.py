"""The files of very many directories that have one each, read with few calls of the system.

A store has a directory a queue, and most queues of a topic with thousands have one short file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple


class OnlyFile(NamedTuple):
    """The one file of a directory: its first bytes, and the last ones before ``data_end`` where it has more.

    After ``data_end`` is one hole; ``tail`` is from ``tail_position`` on, and empty where ``head`` has all.
    """

    name: str
    size: int
    data_end: int
    head: bytes
    tail: bytes = b""
    tail_position: int = 0


def below(directory: int, names: Sequence[str], length: int) -> list[OnlyFile | None]:
    """Return of each directory below an open one its file, None if it has none or more."""
    return [_only_file(directory, name, length) for name in names]


def _only_file(directory: int, name: str, length: int) -> OnlyFile | None:
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        inner = os.open(name, flags | os.O_DIRECTORY, dir_fd=directory)
        try:
            names = os.listdir(inner)  # noqa: PTH208  of an open directory
            if len(names) != 1:
                return None
            file = os.open(names[0], flags, dir_fd=inner)
        finally:
            os.close(inner)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        size, head = os.fstat(file).st_size, os.pread(file, length, 0)
        end = _data_end(file)
        position = max(end - 2 * length, 0)
        tail = os.pread(file, 2 * length, position) if end > length else b""
        return OnlyFile(names[0], size, end, head, tail, position)
    except IsADirectoryError:
        return None
    finally:
        os.close(file)


def _data_end(file: int) -> int:
    """Return up to where a file has data."""
    end = 0
    while True:
        try:
            begin = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return end
        end = os.lseek(file, begin, os.SEEK_HOLE)
