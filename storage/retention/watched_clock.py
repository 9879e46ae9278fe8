"""A clock that is not believed for a time after it has gone ahead by itself: files would expire that have not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.clock import Clock

_LOG: Final = logging.getLogger(__name__)

JUMP_S: Final = 3_600.0  # a clock that goes ahead by more at once is not believed for as long


class WatchedClock:
    """Compares the time of day with the monotonic clock; used by one thread.

    ``looked_s`` is when it was looked at last, by the monotonic clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_ms, self.looked_s = clock.now_ms(), clock.monotonic()
        self._waits_until_s = 0.0  # for who set the clock to set it right

    @property
    def is_doubtful(self) -> bool:
        """Whether nothing is to be deleted by age, as of the last look."""
        return self.looked_s < self._waits_until_s

    def compare(self, newest_ms: int, retention_ms: int) -> None:
        """Doubt the clock if all of the log looks expired, as after a jump while nobody looked.

        ``newest_ms`` is when the newest record was stored, 0: not known.
        """
        ahead_ms = self._looked_ms - newest_ms
        if newest_ms and ahead_ms > max(retention_ms, JUMP_S * 1000):
            self._waits_until_s = self.looked_s + JUMP_S
            _LOG.warning(
                "the newest message is older than the retention, or the clock is wrong: "
                "nothing is deleted by age for an hour"
            )

    def look(self) -> None:
        """Doubt the clock if it has gone ahead by itself since the last look."""
        before_ms, before_s = self._looked_ms, self.looked_s
        self._looked_ms, self.looked_s = self._clock.now_ms(), self._clock.monotonic()
        ahead_s = (self._looked_ms - before_ms) / 1000 - (self.looked_s - before_s)
        if ahead_s > JUMP_S:
            self._waits_until_s = self.looked_s + JUMP_S
            _LOG.warning("the clock went ahead by itself: nothing is deleted by age for an hour")
