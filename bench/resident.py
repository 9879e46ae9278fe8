"""Memory: of a process with all its children, and how much of some files was ever touched."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

PAGE: Final = mmap.PAGESIZE
INTERVAL_S: Final = 1.0
FIELDS: Final = ("RssAnon:", "RssShmem:", "RssFile:")


def resident_bytes(root: int) -> tuple[int, int]:
    """Return what a process and its descendants have resident: all of it, and without mapped files.

    Pages that several of them share count several times.
    """
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    wanted = {root}
    while grown := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= grown
    total = anonymous = 0
    for pid in wanted:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        found = [int(line.split()[1]) << 10 for line in lines if line.startswith(FIELDS)]
        total += sum(found)
        anonymous += sum(
            int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")
        )
    return total, anonymous


class PeakMemory:
    """Looks every second while it is entered; ``total`` and ``anonymous`` are the highest seen.

    Not while ``paused``.
    """

    def __init__(self) -> None:
        self.total = self.anonymous = 0
        self.paused = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            if self.paused:
                continue
            total, anonymous = resident_bytes(os.getpid())
            self.total, self.anonymous = max(self.total, total), max(self.anonymous, anonymous)


def forget(paths: Iterable[Path]) -> None:
    """Drop files from the page cache."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_bytes(paths: Iterable[Path]) -> int:
    """Return how many bytes of the files are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    total = 0
    for path in paths:
        data = np.memmap(path, np.uint8, "r")
        pages = np.zeros(-(-len(data) // PAGE), np.uint8)
        size = ctypes.c_size_t(len(data))
        if libc.mincore(
            ctypes.c_void_p(data.ctypes.data), size, ctypes.c_void_p(pages.ctypes.data)
        ):
            raise OSError(ctypes.get_errno(), "mincore")
        total += int((pages & 1).sum()) * PAGE
    return total
