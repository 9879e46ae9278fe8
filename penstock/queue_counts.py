"""Numbers of topics' queues, as a client knows them for a while."""

from __future__ import annotations

from typing import Final

from storage.clock import Clock

KEPT_S: Final = 30.0


class QueueCounts:
    """Numbers of queues that take writes, each good for KEPT_S seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}

    def known(self, topic: str) -> int | None:
        """Return a topic's number of queues, None if it must be asked for."""
        count, until = self._known.get(topic, (0, float("-inf")))
        return count if self._clock.monotonic() < until else None

    def learn(self, topic: str, count: int) -> int:
        """Take an answer in and return it."""
        self._known[topic] = (count, self._clock.monotonic() + KEPT_S)
        return count

    def forget(self, topic: str) -> None:
        """Ask again the next time: the topic was changed."""
        self._known.pop(topic, None)
