"""How a service process keeps memory: buffers of a message's size are used again, not given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

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
