"""Dispatch on the event loop: what a turn of the loop has appended is shown to consumers at its end.

For a few messages that takes less than waking the dispatch thread, which would ask for the interpreter's lock
while the loop has it. Much at once is left to that thread.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from storage.writer import StoreWriter

FEW_BYTES: Final = 16 << 10  # of the log: dispatched in some tens of microseconds


class LoopDispatch:
    """Made on the event loop that appends; appends of other threads wake the dispatch thread."""

    def __init__(self, store: StoreWriter) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_due = False
        store.dispatch_by(self._appended)

    def _appended(self) -> None:
        if threading.get_ident() != self._thread:
            self._store.dispatch_few(0)
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_due = False
        self._store.dispatch_few(FEW_BYTES)
