"""Which files this process has open: only of some directory, as others come and go meanwhile."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def descriptors_below(*prefixes: object) -> list[str]:
    """What descriptors point to paths that begin so, deleted files included."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one of the listing itself
            target = str(descriptor.readlink())
            if target.startswith(tuple(map(str, prefixes))):
                found.append(target)
    return found
