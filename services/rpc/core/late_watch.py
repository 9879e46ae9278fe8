"""Brief calls are watched for their callers going away only once they take long: most are answered before that."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

WATCH_SECONDS: Final = 0.02  # a call is watched after one to two of it


class Watched(Protocol):
    """What is watched."""

    def watch(self) -> None:
        """Begin to watch it."""
        ...


class LateWatch:
    """Has calls watched that are not answered soon. All methods run on the event loop.

    To learn when a caller goes costs as much as to read its request.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._old: set[Watched] = set()
        self._new: set[Watched] = set()
        self._is_turning = False

    def add(self, call: Watched) -> None:
        """Watch it later, unless it is discarded."""
        self._new.add(call)
        if not self._is_turning:
            self._is_turning = True
            self._loop.call_later(WATCH_SECONDS, self._turn)

    def discard(self, call: Watched) -> None:
        """Do not watch it."""
        self._new.discard(call)
        self._old.discard(call)

    def _turn(self) -> None:
        due, self._old, self._new = self._old, self._new, set()
        for call in due:
            call.watch()
        if self._old:
            self._loop.call_later(WATCH_SECONDS, self._turn)
        else:
            self._is_turning = False
