"""What one caller takes of a port, against its limits. All in memory, and O(1) a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from services.rpc.status import LimitExceeded
from storage.accounts.limits import Limits

BURST_S: Final = 1.0  # what was not taken in this time may be taken at once
BUSY_RETRY_MS: Final = 100  # when others of the caller's calls will have ended, nobody knows
REFUSALS_PER_S: Final = 200  # to one caller; a call that is refused beyond waits for its turn
REFUSALS_WAIT_S: Final = 8.0  # longer than this none waits: more calls than one connection may have
WAITING_MAX: Final = (
    1_024  # refusals that wait, with the calls under way, where fewer calls are allowed
)


class TokenBucket:
    """A bucket of tokens, kept as the moment at which it has some again."""

    __slots__ = ("_per_second", "free_at")

    def __init__(self, per_second: float) -> None:
        self._per_second = 0.0
        self.free_at = float("-inf")  # until then nothing may be taken
        self.set(per_second)

    def set(self, per_second: float) -> None:
        """Fill so many a second, 0 for without end. Another number begins with a full bucket."""
        if per_second != self._per_second:
            self._per_second = per_second
            self.free_at = float("-inf")

    def take(self, count: float, now: float) -> None:
        """Take so many, also more than there are: until they are made up for, nothing may be taken."""
        if self._per_second:
            full_at = now - BURST_S
            base = self.free_at if self.free_at > full_at else full_at
            self.free_at = base + count / self._per_second


class Meter:
    """Counts what one caller takes; used on the event loop."""

    def __init__(
        self, owner: str, limits: Limits, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """``owner`` is whom refusals name, such as ``user 'billing'``."""
        self.owner = owner
        self._monotonic = monotonic
        self._requests = TokenBucket(0.0)
        self._bytes = TokenBucket(0.0)
        self._refusals = TokenBucket(REFUSALS_PER_S)
        self._calls = 0
        self._waiting = 0  # refusals
        self._held_bytes = 0
        self._connections: dict[str, int] = {}  # calls under way of each
        self.limit(limits)

    def limit(self, limits: Limits) -> None:
        """Set the limits; in force with the next call or frame."""
        self._limits = limits
        self._requests.set(limits.requests_per_second or 0)
        self._bytes.set(limits.bytes_per_second or 0)

    @property
    def is_idle(self) -> bool:
        """Whether a new meter would say the same."""
        return not (
            self._calls
            or self._waiting
            or self.wait_s()
            or self._refusals.free_at > self._monotonic()
        )

    def begin(self, request_bytes: int, connection: str) -> None:
        """Count a call that begins. Raises LimitExceeded: then it is not counted."""
        limits, now = self._limits, self._monotonic()
        requests, transfer = self._requests, self._bytes
        if requests.free_at > now:
            wait_s = requests.free_at - now
            raise self._exceeded(f"{limits.requests_per_second} requests a second", wait_s)
        if transfer.free_at > now:
            wait_s = transfer.free_at - now
            raise self._exceeded(f"{limits.bytes_per_second} bytes a second", wait_s)
        if limits.calls_max and self._calls >= limits.calls_max:
            raise self._exceeded(f"{limits.calls_max} calls under way")
        held_bytes = self._held_bytes + request_bytes
        if limits.call_bytes_max and self._held_bytes and held_bytes > limits.call_bytes_max:
            raise self._exceeded(f"{limits.call_bytes_max} bytes of calls under way")
        calls_of_it = self._connections.get(connection, 0)
        connections_max = limits.connections_max
        if connections_max and not calls_of_it and len(self._connections) >= connections_max:
            raise self._exceeded(f"{connections_max} connections with calls under way")
        requests.take(1, now)
        transfer.take(request_bytes, now)
        self._calls += 1
        self._held_bytes = held_bytes
        self._connections[connection] = calls_of_it + 1

    def end(self, request_bytes: int, connection: str, answer_bytes: int = 0) -> None:
        """Count a call that ``begin`` counted as ended, with an answer that was not counted."""
        if answer_bytes:
            self._bytes.take(answer_bytes, self._monotonic())
        self._calls -= 1
        self._held_bytes -= request_bytes
        left = self._connections[connection] - 1
        if left:
            self._connections[connection] = left
        else:
            del self._connections[connection]

    def take_frame(self, frame_bytes: int) -> None:
        """Count one frame of a stream of requests."""
        now = self._monotonic()
        self._requests.take(1, now)
        self._bytes.take(frame_bytes, now)

    def take_answer(self, answer_bytes: int) -> None:
        """Count one answer."""
        self._bytes.take(answer_bytes, self._monotonic())

    def hold(self, count: int) -> None:
        """Count bytes that memory holds of a call under way; of fewer, a negative number."""
        self._held_bytes += count

    def wait_s(self) -> float:
        """Return how long a stream waits with its next frame, 0 for not at all."""
        return max(0.0, max(self._requests.free_at, self._bytes.free_at) - self._monotonic())

    @contextmanager
    def refusal_wait_s(self) -> Iterator[float]:
        """Give how long a refusal waits for its turn: who calls again at once costs no more than that.

        What waits takes one of the port's calls: with the caller's own it is never more than its limit.
        """
        now = self._monotonic()
        wait_s = max(0.0, self._refusals.free_at - now)
        room = max(self._limits.calls_max or 0, WAITING_MAX)
        if wait_s > REFUSALS_WAIT_S or self._calls + self._waiting >= room:
            yield 0.0
            return
        self._refusals.take(1, now)
        self._waiting += 1
        try:
            yield wait_s
        finally:
            self._waiting -= 1

    def _exceeded(self, limit: str, wait_s: float = BUSY_RETRY_MS / 1e3) -> LimitExceeded:
        return LimitExceeded(
            f"the limit of {self.owner} is reached: {limit}",
            retry_delay_ms=max(1, round(wait_s * 1e3)),
        )
