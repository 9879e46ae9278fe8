"""What processes use: processor time, and how much of some files is in the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from storage.files.allocator import WARM_FILES

PAGE: Final = mmap.PAGESIZE
WARM_WAIT_S: Final = 60.0
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process_ids: Iterable[int]) -> float:
    """Return the processor time that processes have used so far, their own and the kernel's for them."""
    total = 0.0
    for process_id in process_ids:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return total


def descendants(root: int) -> set[int]:
    """Return the ids of the processes that a process has started, and they in turn."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = {root}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {root}


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


def wait_until_warmed(log: Path, file_bytes: int) -> None:
    """Wait until a writer has filled the page cache of its log's first two files, one by one.

    A machine that takes idle page cache back may have begun with one before all of it is there: then
    it is done when it no longer grows.
    """
    until = time.monotonic() + WARM_WAIT_S
    for number in range(WARM_FILES):
        path = log / f"{number * file_bytes:020d}"
        before = seen = 0
        while seen < file_bytes and not file_bytes // 2 < seen <= before:
            if time.monotonic() > until:
                raise RuntimeError(f"{path.name} was not warmed within {WARM_WAIT_S:.0f} s")
            time.sleep(0.25)
            before, seen = seen, cached_bytes([path]) if path.exists() else 0
