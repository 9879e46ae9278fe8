"""Decisions which failed calls are tried again, and after how long; no sleeping."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.errors import DeadlineExceeded, PenstockError, ResourceExhausted, Unavailable


class Repeat(Enum):
    """The effect of a second attempt of a call."""

    SAFE = "nothing that the first attempt did not do: repeat when unreachable"
    KNOWN = "nothing, as the writer knows what it names: repeat when unreachable or silent"
    ONCE = "nothing, as the writer knows the request: repeat whatever leaves its outcome open"
    NEVER = "fail for another reason than the first attempt: never repeat"

    @property
    def outlasts_silence(self) -> bool:
        """Whether a request that has no answer in time is repeated."""
        return self in (Repeat.KNOWN, Repeat.ONCE)


SLOW_BYTES_S: Final = 256 << 10  # a second, over the slowest link that is not taken for silent


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait between attempts; a service's own ``retry_delay_ms`` wins.

    ``unreachable_s_max`` bounds the time for an address where nobody listens. An attempt of a request that is
    stored once gets half of the time that is left, ``answer_s_min`` at least.
    """

    first_delay_ms: int = 20
    delay_ms_max: int = 2_000
    unreachable_s_max: float = float("inf")
    answer_s_min: float = 1.0

    def answer_s(self, left_s: float, size: int) -> float:
        """Return how long an attempt of so many bytes waits before another one, of ``left_s`` for all of them."""
        answer_s = max(left_s / 2, self.answer_s_min) + size / SLOW_BYTES_S
        return answer_s if answer_s + self.answer_s_min <= left_s else left_s

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
        again = isinstance(error, Unavailable) or repeat.outlasts_silence
        return (error.retry_delay_ms or self.backoff_ms(attempt)) if again else None

    def backoff_ms(self, attempt: int) -> int:
        """Return a delay that doubles with each attempt, shortened by up to a half at random."""
        longest = min(self.delay_ms_max, self.first_delay_ms << min(attempt, 16))
        return int(longest * random.uniform(0.5, 1))  # noqa: S311  spreads load, keeps no secret
