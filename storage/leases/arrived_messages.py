"""Which queues got messages of late, for groups that share topics of many queues."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from storage.reader import StoreReader
from storage.view.queues.arrived import ArrivedQueues, Queue

_LOOKS_KEPT: Final = 256


class ArrivedMessages:
    """Looks at the log when it is asked, and keeps the last looks. Safe to use from several threads."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._guard = threading.Lock()
        self._arrived: ArrivedQueues | None = None
        self._looks: deque[frozenset[Queue] | None] = deque(maxlen=_LOOKS_KEPT)
        self._look_count = 0

    def since(self, look: int) -> tuple[int, frozenset[Queue] | None]:
        """Return the number of the latest look, and the queues that got messages after look number ``look``.

        None instead of queues where it may be any: much was stored, or that look is not kept.
        """
        with self._guard:
            if self._arrived is None:
                self._arrived = ArrivedQueues(self._reader.log)
            end_offset = self._reader.visible_offset
            if end_offset != self._arrived.position or self._reader.positions is None:
                self._looks.append(self._arrived.look(end_offset))
                self._look_count += 1
            missed = self._look_count - look
            if missed > len(self._looks):
                return self._look_count, None
            found: set[Queue] = set()
            for number in range(len(self._looks) - missed, len(self._looks)):
                queues = self._looks[number]
                if queues is None:
                    return self._look_count, None
                found |= queues
            return self._look_count, frozenset(found)
