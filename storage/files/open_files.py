"""How many files a process may have open, and what share of that each use may take.

Systems start processes with 1,024 and let them ask for many more. Queues have files by the thousand,
and a service's connections are open files, too: none of them may take what the store itself needs.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

ENOUGH: Final = 1 << 20


def raise_limit() -> None:
    """Ask for as many open files as this process can have, up to ENOUGH."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # a kernel may have a lower bound of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def at_most(wanted: int, *, share: int) -> int:
    """Return ``wanted``, or less if that is more than one part of ``share`` of what may be open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if limit == resource.RLIM_INFINITY else max(1, min(wanted, limit // share))
