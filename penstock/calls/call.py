"""One call, its attempts, and plans of several: what runs them does the I/O and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Self, TypeVar

import grpc

from penstock.addresses import Service
from penstock.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PenstockError,
    PermissionDenied,
    ResourceExhausted,
    RpcError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    UnknownOutcome,
    from_rpc_error,
)
from penstock.proxies import Way, with_way
from penstock.retry import Repeat, RetryPolicy
from penstock.sequences import RequestToken, Sequences
from penstock.wire import Method
from storage.clock import Clock

T = TypeVar("T")
R = TypeVar("R")
Plan = Generator["Call[Any]", Any, T]
"""An operation of several calls: it yields each, is sent its result, and returns a value."""
_LEFT_MIN_S: Final = 0.001
_PLAIN: Final = Way()
_LEFT_TO_PRODUCE_MIN_S: Final = 0.1  # an attempt that is cut off leaves open whether it has stored

# Said by the service about the request itself; anything else leaves the outcome open.
_SAYS_WHAT_HAPPENED: Final = (
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Unauthenticated,
    PermissionDenied,
)
# Of these another attempt may have been taken before.
_OF_THE_MOMENT: Final = (
    ResourceExhausted,
    FailedPrecondition,
    Unauthenticated,
    PermissionDenied,
)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, how to read its answer, and what repeating it could do."""

    method: Method
    request: Any
    interpret: Callable[[Any], T]
    repeat: Repeat = Repeat.SAFE
    wait_ms: int = 0  # how long the service is asked to wait, on top of the timeout
    with_producer: Callable[[bytes], Any] | None = None  # the request with a producer's field
    token: str = ""  # of the same call, whose outcome was unknown
    timeout_s: float | None = None  # for all attempts; None: the client's

    @property
    def size(self) -> int:
        """Bytes of the request, about."""
        request = self.request
        if isinstance(request, tuple):
            return sum(map(len, request))
        size: int = len(request) if isinstance(request, bytes) else request.ByteSize()
        return size

    def then(self, following: Callable[[T], R]) -> Call[R]:
        """Return the same call with another value, made of its own."""
        interpret = self.interpret
        return replace(self, interpret=lambda answer: following(interpret(answer)))  # type: ignore[arg-type,return-value]

    def error_of(self, error: RpcError, way: Way = _PLAIN) -> PenstockError:
        """Return what a failed attempt is to be raised as."""
        return with_way(from_rpc_error(error), way)


class Attempts:
    """The attempts of one call within its deadline.

    A call that must be done once carries the same token in each attempt. Its age is measured from the first
    attempt that the service may have taken.
    """

    def __init__(
        self,
        call: Call[Any],
        policy: RetryPolicy,
        *,
        timeout_s: float,
        clock: Clock,
        sequences: Sequences,
        way_to: Callable[[Service], Way] = lambda _: _PLAIN,
    ) -> None:
        self._call = call
        self._way_to = way_to
        self._policy = policy
        self._clock = clock
        self._began = clock.monotonic()
        self._deadline = self._began + timeout_s + call.wait_ms / 1000
        self._count = 0
        self._previous: PenstockError | None = None
        self.is_silent = False
        self._sequences = sequences
        self._token: RequestToken | None = None
        self._sent_at = self._began
        self._taken_at: float | None = (
            None  # when the first attempt began that is not known to have done nothing
        )
        if call.token:
            self._token = RequestToken.parse(call.token)
            self._taken_at = self._began - self._token.age_s(clock)
        elif call.with_producer is not None:
            self._token = sequences.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Take in that the call has its outcome, or nobody waits for it any more."""
        if self._token is not None:
            self._sequences.end(self._token)

    def request(self) -> Any:
        """Return what to send in the next attempt."""
        token = self._token
        if token is None or self._call.with_producer is None:
            return self._call.request
        self._sent_at = self._clock.monotonic()
        return self._call.with_producer(token.field(self._age_ms(token, self._sent_at)))

    def _age_ms(self, token: RequestToken, now: float) -> int:
        """Return how long ago the writer may have taken it first, 0 if it certainly has not."""
        return 0 if self._taken_at is None else token.age_ms(now - self._taken_at)

    def remaining_s(self) -> float:
        """Return how much of the deadline is left for all attempts to come."""
        return max(_LEFT_MIN_S, self._deadline - self._clock.monotonic())

    def answer_s(self) -> float:
        """Return how long the next attempt waits for its answer."""
        call, left_s = self._call, self.remaining_s()
        return self._policy.answer_s(left_s, call.size) if call.repeat.outlasts_silence else left_s

    def after(self, error: RpcError) -> float:
        """Return the seconds to wait before another attempt, or raise what the call failed with.

        ``is_silent`` says then whether that attempt should go over another connection.
        """
        failure = self._call.error_of(error, self._way_to(self._call.method.service))
        elapsed_s = self._clock.monotonic() - self._began
        delay_ms = self._policy.delay_ms(failure, self._call.repeat, self._count, elapsed_s)
        self.is_silent = isinstance(failure, DeadlineExceeded)
        self._count += 1
        once = self._call.repeat is Repeat.ONCE
        left_min_s = _LEFT_TO_PRODUCE_MIN_S if once else _LEFT_MIN_S
        was_unanswered = self._taken_at is not None
        if once and not was_unanswered and isinstance(produce_error(failure), UnknownOutcome):
            self._taken_at = self._sent_at
        if delay_ms is not None and delay_ms / 1000 < self.remaining_s() - left_min_s:
            failure.__cause__ = error if isinstance(error, BaseException) else None
            self._previous = failure
            return delay_ms / 1000
        failure.__cause__ = error if isinstance(error, BaseException) else None
        if once:
            raise self._produce_error(failure, was_unanswered=was_unanswered)
        if isinstance(failure, DeadlineExceeded) and self._previous is not None:
            raise self._previous  # says more than that the last attempt had too little time
        raise failure

    def given_up(self, failure: PenstockError, *, is_unanswered: bool = False) -> PenstockError:
        """Return what a call that must be done once is to be raised as when nobody waits for it any more.

        ``is_unanswered``: an attempt is under way.
        """
        if is_unanswered and self._taken_at is None:
            self._taken_at = self._sent_at
        if self._taken_at is None:
            return failure
        return self._produce_error(failure, was_unanswered=True)

    def _produce_error(self, failure: PenstockError, *, was_unanswered: bool) -> PenstockError:
        token = self._token
        if token is None or self._taken_at is None:
            return produce_error(failure, was_unanswered=was_unanswered)
        dated = token.dated(self._clock.monotonic() - self._taken_at, self._clock)
        error = produce_error(failure, token=str(dated), was_unanswered=was_unanswered)
        if isinstance(error, UnknownOutcome) and error.token:
            self._sequences.leave(token)
        return error


def produce_error(
    error: PenstockError, *, token: str = "", was_unanswered: bool = False
) -> PenstockError:
    """Return the exception of a failed produce: refused, or of unknown outcome.

    ``was_unanswered``: an earlier attempt was sent and not answered. A refusal because of the writer's state
    then leaves open whether the messages are stored.
    """
    if isinstance(error, _SAYS_WHAT_HAPPENED) and not (
        was_unanswered and isinstance(error, _OF_THE_MOMENT)
    ):
        return error
    if isinstance(error, Unavailable) and error.never_taken and not was_unanswered:
        return error
    if error.code is grpc.StatusCode.ABORTED:
        token = ""
    unknown = UnknownOutcome(
        f"the messages may or may not have been stored: {error.message}",
        token=token,
        code=error.code,
        reason=error.reason,
    )
    unknown.__cause__ = error
    return unknown
