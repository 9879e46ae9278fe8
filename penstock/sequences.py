"""Which request of which producer: what lets a writer tell a request that is sent again from a new one."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from typing import Final

from penstock.errors import InvalidArgument
from penstock.v1 import writer_pb2
from storage.clock import Clock

SPAN_MAX: Final = 256  # between two sequences that are not answered; a writer knows twice as many
_ID_BITS: Final = 63
_SEQUENCE_MAX: Final = (1 << 32) - 1
_FIELD: Final = bytes([writer_pb2.ProduceRequest.PRODUCER_FIELD_NUMBER << 3 | 2])


@dataclass(frozen=True, slots=True)
class RequestToken:
    """One request of one producer, first sent at ``first_ms`` of this machine's clock."""

    producer_id: int
    sequence: int
    first_ms: int

    def field(self, age_ms: int) -> bytes:
        """Return the field of a serialized request by which it is sent, ``age_ms`` after the first time; 0 is that time."""
        encoded = writer_pb2.ProducerSequence(
            producer_id=self.producer_id, sequence=self.sequence, age_ms=age_ms
        ).SerializeToString()
        return b"%b%c%b" % (_FIELD, len(encoded), encoded)

    def __str__(self) -> str:
        """Return what `parse` reads."""
        return f"{self.producer_id:016x}-{self.sequence}-{self.first_ms}"

    @classmethod
    def parse(cls, text: str) -> RequestToken:
        """Return the token that an UnknownOutcome had. Raises InvalidArgument."""
        parts = text.split("-")
        try:
            producer_id, sequence, first_ms = int(parts[0], 16), int(parts[1]), int(parts[2])
        except (ValueError, IndexError):
            producer_id = sequence = first_ms = 0
        if not (
            len(parts) == 3 and 0 < producer_id < 1 << _ID_BITS and 0 < sequence <= _SEQUENCE_MAX
        ):
            raise InvalidArgument(
                f"{text!r} is no token of an UnknownOutcome", field="token", reason="INVALID_TOKEN"
            )
        return cls(producer_id, sequence, first_ms)

    def age_ms(self, clock: Clock) -> int:
        """Return how long ago it was first sent, 1 at least."""
        return max(1, clock.now_ms() - self.first_ms)


class Sequences:
    """Numbers the requests of one producer; safe to use from several threads.

    A request that is not answered must not be left too far behind, or the writer forgets what became of those
    of its time: then the producer goes on as a new one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._producer_id = 0
        self._last = _SEQUENCE_MAX
        self._open: dict[int, None] = {}  # not answered, in order

    def begin(self) -> RequestToken:
        """Return the token of a new request."""
        with self._lock:
            oldest = next(iter(self._open), self._last)
            if self._last == _SEQUENCE_MAX or self._last - oldest >= SPAN_MAX - 1:
                self._producer_id = secrets.randbelow((1 << _ID_BITS) - 1) + 1
                self._last = 0
                self._open = {}
            self._last += 1
            self._open[self._last] = None
            return RequestToken(self._producer_id, self._last, self._clock.now_ms())

    def end(self, token: RequestToken) -> None:
        """Take in that a request has its outcome, or nobody waits for it any more."""
        with self._lock:
            if token.producer_id == self._producer_id:
                self._open.pop(token.sequence, None)
