"""How a service process keeps memory, and how much there is.

Buffers are used again, and what start-up made is not searched for garbage.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

# New objects that may be in cycles, until the newest are searched; how often that, until those are searched that
# were left; and how often that, until all are. A search holds the interpreter: 20,000 objects take some 6 ms.
_COLLECT_AFTER: Final = (5_000, 4, 100)
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_REUSED_BYTES_MAX: Final = 8 << 20
_KEPT_BYTES: Final = 16 << 20
_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CONTROL_GROUPS: Final = Path("/proc/self/cgroup")


def keep_buffers() -> None:
    """Let malloc take buffers of up to 8 MiB from its heaps and keep 16 MiB free at each one's end.

    By default glibc maps every buffer above 128 KiB again, at a page fault for each 4 KiB of it: for
    an answer of 1 MiB more than checking and copying the records. Other C libraries are left alone.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _REUSED_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def set_aside() -> None:
    """Take all modules and kernels out of the search for garbage: opening a store makes much, and searches often."""
    gc.freeze()


def settle() -> None:
    """Take everything made so far out of the search for garbage, and search less often.

    Modules and compiled kernels stay for good, and calls leave hardly any cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def limit_bytes(groups: Path = _CONTROL_GROUPS, own_groups: Path = _OWN_CONTROL_GROUPS) -> int:
    """Return how much memory this process may use: the machine's, or less if a control group says so.

    Both versions of control groups are asked (cgroups(7)): a process is bound by its own group and by
    every one above it. Inside a container the topmost that it sees is its own.
    """
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:
        return limit
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        own = root / path.lstrip("/")
        for group in (own, *own.parents):
            with suppress(OSError, ValueError):  # not mounted here; "max"
                limit = min(limit, int((group / name).read_text()))
            if group == root:
                break
    return limit
