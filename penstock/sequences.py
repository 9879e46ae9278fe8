"""Producer ids and sequences, by which the writer recognizes a request that is sent again."""

from __future__ import annotations

import os
import secrets
import threading
from typing import Final, NamedTuple

from penstock.errors import InvalidArgument
from penstock.framing import varint
from penstock.v1 import writer_pb2
from storage.clock import Clock, suspended_ms

SPAN_MAX: Final = 256  # between two sequences that are not answered; a writer knows twice as many
_ID_BITS: Final = 63
_SEQUENCE_MAX: Final = (1 << 32) - 1
_FIELD_TAG: Final = writer_pb2.ProduceRequest.PRODUCER_FIELD_NUMBER << 3 | 2
_ID_TAG: Final = writer_pb2.ProducerSequence.PRODUCER_ID_FIELD_NUMBER << 3 | 1
_SEQUENCE_TAG: Final = writer_pb2.ProducerSequence.SEQUENCE_FIELD_NUMBER << 3
_TO_SEQUENCE_SIZE: Final = 1 + 8 + 1  # bytes of the field before the sequence
_AGE_TAG: Final = bytes([writer_pb2.ProducerSequence.AGE_MS_FIELD_NUMBER << 3])


class RequestToken(NamedTuple):
    """One request of one producer, first sent at ``first_ms``: Unix milliseconds, 0 until somebody else needs to know.

    ``suspended_ms`` is for how long the machine had slept when the token was made here.
    """

    producer_id: int
    sequence: int
    first_ms: int = 0
    suspended_ms: int = 0

    def field(self, age_ms: int) -> bytes:
        """Return the field of a serialized request by which it is sent, ``age_ms`` after the first time; 0 is that time."""
        producer_id, sequence = self[:2]
        numbers = varint(sequence)
        if age_ms:
            numbers = b"".join((numbers, _AGE_TAG, varint(age_ms)))
        size = _TO_SEQUENCE_SIZE + len(numbers)
        return b"%c%c%c%b%c%b" % (
            _FIELD_TAG, size, _ID_TAG, producer_id.to_bytes(8, "little"), _SEQUENCE_TAG, numbers
        )  # fmt: skip

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
        return cls(producer_id, sequence, first_ms, suspended_ms())

    def age_s(self, clock: Clock) -> float:
        """Return how long ago it was first sent, 0 at least."""
        return max(0, clock.now_ms() - self.first_ms) / 1_000

    def dated(self, age_s: float, clock: Clock) -> RequestToken:
        """Return the token with the time of its first attempt, for somebody who may send it again."""
        return self._replace(first_ms=clock.now_ms() - self.age_ms(age_s))

    def age_ms(self, age_s: float) -> int:
        """Return the request's age, 1 at least; its first attempt was ``age_s`` of the monotonic clock ago.

        The machine's sleep since the token was made is added.
        """
        return int(age_s * 1_000) + 1 + max(0, suspended_ms() - self.suspended_ms)


class Sequences:
    """Numbers the requests of one producer; safe to use from several threads.

    The writer forgets a request that is too far behind the producer's newest. So the producer takes a new id
    when an unanswered request would fall too far behind, after a fork, and when a request is left to be asked
    for later.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._process_id = 0
        self._producer_id = 0
        self._last = self._last_max = (
            0  # the most that it may become before the oldest is looked at
        )
        self._open: dict[int, None] = {}  # not answered, in order

    def begin(self) -> RequestToken:
        """Return the token of a new request."""
        with self._lock:
            process_id = os.getpid()
            if process_id != self._process_id:
                self._process_id = process_id
                self._begin_anew()
            elif self._last >= self._last_max:
                oldest = next(iter(self._open), self._last + 1)
                self._last_max = min(oldest + SPAN_MAX - 1, _SEQUENCE_MAX)
                if self._last >= self._last_max:
                    self._begin_anew()
            sequence = self._last = self._last + 1
            self._open[sequence] = None
            return RequestToken(self._producer_id, sequence, 0, suspended_ms())

    def _begin_anew(self) -> None:
        """Go on as a producer that nobody has heard of."""
        self._producer_id = secrets.randbelow((1 << _ID_BITS) - 1) + 1
        self._last = 0
        self._last_max = SPAN_MAX
        self._open = {}

    def end(self, token: RequestToken) -> None:
        """Take in that a request has its outcome, or nobody waits for it any more."""
        with self._lock:
            if token.producer_id == self._producer_id:
                self._open.pop(token.sequence, None)

    def leave(self, token: RequestToken) -> None:
        """Take in that a request stays without outcome, and may be asked for later: go on as a new producer.

        The writer then knows the request for as long as it knows the producer.
        """
        with self._lock:
            if token.producer_id == self._producer_id:
                self._last = self._last_max = _SEQUENCE_MAX
