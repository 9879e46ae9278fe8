"""How full a file system is."""

from __future__ import annotations

import os
from typing import NamedTuple


class DiskSpace(NamedTuple):
    """How much of a file system is used, and how much may be used yet, in bytes."""

    used_bytes: int
    usable_bytes: int

    @property
    def used_percent(self) -> int:
        """The share in use, rounded up, as a broker reckons it."""
        total = self.used_bytes + self.usable_bytes
        return -(-100 * self.used_bytes // total) if total else 0


def disk_space(descriptor: int) -> DiskSpace:
    """Return how full the file system of an open file or directory is."""
    found = os.fstatvfs(descriptor)
    used_blocks = found.f_blocks - found.f_bfree
    return DiskSpace(used_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
