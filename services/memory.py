"""How a service process keeps memory: buffers are used again, what start-up made is not searched."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from typing import Final

_COLLECT_AFTER: Final = 20_000  # new objects that may be in cycles
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_REUSED_BYTES_MAX: Final = 8 << 20
_KEPT_BYTES: Final = 16 << 20


def keep_buffers() -> None:
    """Let malloc take buffers of up to 8 MiB from its heaps and keep 16 MiB free at each one's end.

    By default glibc maps every buffer above 128 KiB anew, at a page fault for each 4 KiB of it: for
    an answer of 1 MiB more than checking and copying the records. Other C libraries are left alone.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _REUSED_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def settle() -> None:
    """Take everything made so far out of the search for garbage, and search less often.

    Modules and compiled kernels stay for good, and calls leave hardly any cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
