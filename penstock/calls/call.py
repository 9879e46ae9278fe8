"""One call, its attempts, and plans of several: what runs them does the I/O and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.errors import (
    DeadlineExceeded,
    NotFound,
    PenstockError,
    RpcError,
    from_rpc_error,
    produce_error,
)
from penstock.retry import Repeat, RetryPolicy
from penstock.wire import Method
from storage.clock import Clock

T = TypeVar("T")
Plan = Generator["Call[Any]", Any, T]
"""An operation of several calls: it yields each, is sent its result, and returns a value."""
_LEFT_MIN_S: Final = 0.001
_LEFT_TO_PRODUCE_MIN_S: Final = 0.1  # an attempt that is cut off leaves open whether it has stored


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, how to read its answer, and what repeating it could do."""

    method: Method
    request: Any
    interpret: Callable[[Any], T]
    repeat: Repeat = Repeat.SAFE
    not_found: type[NotFound] = NotFound
    wait_ms: int = 0  # how long the service is asked to wait, on top of the timeout

    def error_of(self, error: RpcError) -> PenstockError:
        """Return what a failed attempt is to be raised as."""
        return from_rpc_error(error, not_found=self.not_found)


class Attempts:
    """The attempts of one call within its deadline."""

    def __init__(
        self, call: Call[Any], policy: RetryPolicy, *, timeout_s: float, clock: Clock
    ) -> None:
        self._call = call
        self._policy = policy
        self._clock = clock
        self._began = clock.monotonic()
        self._deadline = self._began + timeout_s + call.wait_ms / 1000
        self._count = 0
        self._previous: PenstockError | None = None

    def remaining_s(self) -> float:
        """Return how much of the deadline is left for the next attempt."""
        return max(_LEFT_MIN_S, self._deadline - self._clock.monotonic())

    def after(self, error: RpcError) -> float:
        """Return the seconds to wait before another attempt, or raise what the call failed with."""
        failure = self._call.error_of(error)
        elapsed_s = self._clock.monotonic() - self._began
        delay_ms = self._policy.delay_ms(failure, self._call.repeat, self._count, elapsed_s)
        self._count += 1
        duplicates = self._call.repeat is Repeat.DUPLICATES
        left_min_s = _LEFT_TO_PRODUCE_MIN_S if duplicates else _LEFT_MIN_S
        if delay_ms is not None and delay_ms / 1000 < self.remaining_s() - left_min_s:
            failure.__cause__ = error if isinstance(error, BaseException) else None
            self._previous = failure
            return delay_ms / 1000
        failure.__cause__ = error if isinstance(error, BaseException) else None
        if duplicates:
            raise produce_error(failure)
        if isinstance(failure, DeadlineExceeded) and self._previous is not None:
            raise self._previous  # says more than that the last attempt had too little time
        raise failure
