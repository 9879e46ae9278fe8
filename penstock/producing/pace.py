"""Whether batches are answered about as soon as the way to the writer allows.

A batch that is answered later than the shortest time seen has waited in a queue: in gRPC, on the way, in
the writer. More messages would make that queue longer and nothing faster. So a producer waits
once its oldest batch has taken twice that time and QUEUEING_S. The shortest time is measured again every
WINDOW_S, after a drain, as BBR does (Cardwell et al., CACM 60/2, 2017).
"""

from __future__ import annotations

from typing import Final

QUEUEING_S: Final = 0.010
WINDOW_S: Final = 10.0  # a shortest time is believed so long


class Pace:
    """The shortest time from sending a batch to its answer, and whether the oldest batch is late."""

    def __init__(self) -> None:
        self._shortest_s = (
            0.0  # not measured: the first batches alone show how long an answer takes
        )
        self._measured_at = float("-inf")
        self._drained_at: float | None = 0.0  # batches sent from then on are measured

    def answered(self, sent_at: float, now: float) -> None:
        """Take in the answer to a batch sent at ``sent_at``."""
        took_s = now - sent_at
        if self._drained_at is not None:
            if sent_at < self._drained_at:
                return
            self._drained_at = None
            self._shortest_s, self._measured_at = took_s, now
        elif took_s <= self._shortest_s:
            self._shortest_s, self._measured_at = took_s, now
        elif now - self._measured_at > WINDOW_S:
            # A time measured after batches of our own would let the queue grow: it has to drain first.
            self._drained_at = now + took_s

    def is_late(self, oldest_sent_at: float, now: float) -> bool:
        """Return whether more would only wait, the oldest batch in flight having been sent then."""
        return self._drained_at is not None or (
            now - oldest_sent_at > 2 * self._shortest_s + QUEUEING_S
        )
