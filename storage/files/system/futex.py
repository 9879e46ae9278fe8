"""A 32-bit word in a shared page that processes sleep on until its owner bumps it.

One process owns a word and bumps it; any number of others, which may have the page mapped read
only, wait for it to change. Waking takes tens of microseconds across processes and nothing polls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from storage.files import libc

if TYPE_CHECKING:
    from storage.files.protocol import ByteArray


class WakeWord:
    """A futex at a 4-byte aligned position of a mapped page.

    The object keeps the page mapped. ``bump`` belongs to the owning process; everything else may be
    called by anybody.
    """

    def __init__(self, page: ByteArray, position: int) -> None:
        if position % 4:
            raise ValueError(f"a futex must be 4-byte aligned, not at {position}")
        self._page = page
        self._words = memoryview(page).cast("B")[position : position + 4].cast("I")  # type: ignore[arg-type]
        self._address = page.ctypes.data + position
        self._interrupted = False

    @property
    def value(self) -> int:
        """Return the word now; pass it to ``wait`` after having looked at what it guards."""
        return self._words[0]

    def bump(self) -> None:
        """Change the word and wake every waiter; call after the guarded stores."""
        self._words[0] = (self._words[0] + 1) & 0xFFFFFFFF
        libc.futex_wake(self._address)

    def interrupt(self) -> None:
        """End every wait through this object, now and later; for use at a stop.

        A thread that is just about to sleep may miss it and takes its whole timeout.
        """
        self._interrupted = True
        libc.futex_wake(self._address)

    def knock(self) -> None:
        """End a ``doze`` under way; one that is just about to begin may miss it. The word stays."""
        libc.futex_wake(self._address)

    def doze(self, seen: int, timeout_s: float) -> None:
        """Sleep, GIL released, until somebody knocks, the word differs from ``seen``, or time is up."""
        if not self._interrupted:
            libc.futex_wait(self._address, seen, timeout_s)

    def wait(self, seen: int, timeout_s: float | None) -> int:
        """Sleep, GIL released, until the word differs from ``seen`` or time is up; return it.

        A result equal to ``seen`` means time is up, or an interrupt. Never misses a bump made after ``seen`` was
        read, because the kernel compares the word again before it sleeps.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (value := self._words[0]) == seen and not self._interrupted:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            libc.futex_wait(self._address, seen, left)
        return value
