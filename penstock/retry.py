"""Which failed calls are tried again, and after how long; pure decisions, no sleeping."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from penstock.errors import DeadlineExceeded, PenstockError, ResourceExhausted, Unavailable


class Repeat(Enum):
    """What a second attempt of a call could do."""

    SAFE = "nothing that the first attempt did not do: repeat when unreachable"
    ONCE = "nothing, as the writer knows the request: repeat whatever leaves its outcome open"
    NEVER = "fail for another reason than the first attempt: never repeat"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait between attempts; a service's own ``retry_delay_ms`` goes first.

    ``unreachable_s_max`` gives an address where nobody listens less time than the call has.
    """

    first_delay_ms: int = 20
    delay_ms_max: int = 2_000
    unreachable_s_max: float = float("inf")

    def delay_ms(
        self, error: PenstockError, repeat: Repeat, attempt: int, elapsed_s: float = 0.0
    ) -> int | None:
        """Return how long to wait before attempt number ``attempt`` + 1, None to raise."""
        if repeat is Repeat.NEVER:
            return None
        if isinstance(error, Unavailable) and error.never_left:
            if elapsed_s >= self.unreachable_s_max:
                return None
            left_ms = 1_000 * min(self.unreachable_s_max - elapsed_s, 3_600)
            return min(self.backoff_ms(attempt), int(left_ms) + 1)
        if isinstance(error, ResourceExhausted):
            return error.retry_delay_ms or None
        if not isinstance(error, Unavailable | DeadlineExceeded):
            return None
        again = isinstance(error, Unavailable) or repeat is Repeat.ONCE
        return self.backoff_ms(attempt) if again else None

    def backoff_ms(self, attempt: int) -> int:
        """Return a delay that doubles with each attempt, shortened by up to a half at random."""
        longest = min(self.delay_ms_max, self.first_delay_ms << min(attempt, 16))
        return int(longest * random.uniform(0.5, 1))  # noqa: S311  spreads load, keeps no secret
