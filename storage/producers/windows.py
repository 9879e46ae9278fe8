"""Which requests of producers are stored, and where: what tells a repeated request from a new one.

A producer is an id that a client has drawn, and counts its requests; a repeat has its sequence again.

1. Every request that is in the log is in the window of its producer, or in what the window has
   forgotten: the record says whose it is (``storage.format.producer_sequence``), and a start reads
   what the log has got since the windows were saved.
2. Of a producer the last SEQUENCES_MAX requests are known, and of those before how high their
   sequences went: ``forgotten``. A sequence at or below it that is not known is refused.
3. Producers that were not heard of for the longest time are forgotten when there are too many. One
   that is not known could be one of them if its request was first sent before ``forgotten_ms``, the
   last time one of them was heard of. One that comes back keeps that time, as ``unknown_ms``.
4. After a power cut in an async mode the log may have holes, and the first record of a request with
   them. What was first sent before ``doubtful_ms`` and is not known could have been stored in part.

5. A request of which nobody knows where all of its records are has no parts: NOWHERE.
6. Of the producer that was heard of last, requests that follow in order are written down in ``_following``
   alone, which is cheap; they are taken in together, before anything but the next of them is looked at.

So a repeat that is not known is stored if its age says that it cannot be one of those, and is
refused otherwise: never is it stored twice. The age is told by the client when it sends; WAY_MS is
for the way. Times are the wall clock's at the start, and go on as the monotonic clock does: who sets
the wall clock changes no age.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from storage.errors import OutcomeForgotten, PicklableError, StoreBusy
from storage.format.producer_sequence import PRODUCER_ID_MAX, SEQUENCE_MAX
from storage.format.producer_windows import (
    Parts,
    ProducerBlock,
    WindowsHead,
    encode_block,
    encode_windows,
)

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.message import ProducerSequence

SEQUENCES_MAX: Final = (
    512  # of a producer; twice what a client lets lie between two that are not answered
)
PRODUCERS_MAX: Final = 16_384
REQUESTS_MAX: Final = 1 << 17  # of all producers
WAY_MS: Final = 60_000
NEVER: Final = -1 << 62
NOWHERE: Final[Parts] = ()
SET_MS_MIN: Final = 5_000  # by which the clock was set; of less WAY_MS takes care
FOLLOWING_MAX: Final = 256
_AGE_MAX_MS: Final = 1 << 61


def _left_of(parts: Parts, end_offset: int) -> Parts | None:
    """Return the parts of a request that a log has which ends there; None if it has nothing of it."""
    if max(parts, default=0) <= end_offset:
        return parts
    left: list[int] = []
    for begin, end in zip(parts[::2], parts[1::2], strict=False):
        if begin < end_offset:
            left += begin, min(end, end_offset)
    return (*left, 0) if left else None


class _KnownProducer:
    """What is known of one producer. No sequence of it is above ``highest``."""

    __slots__ = ("forgotten", "highest", "last_ms", "requests", "unknown_ms")

    def __init__(self, unknown_ms: int) -> None:
        self.requests: dict[int, Parts] = {}
        self.forgotten = self.highest = 0
        self.last_ms = NEVER
        self.unknown_ms = unknown_ms

    def copied(self, producer_id: int) -> ProducerBlock:
        """Return a copy of what it is now."""
        requests = self.requests.copy()
        return ProducerBlock(producer_id, self.last_ms, self.forgotten, self.unknown_ms, requests)


class ProducerWindows:
    """The requests of all producers. Used under the lock of the store's appends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._monotonic = clock.monotonic
        self._shift_ms = clock.now_ms() - int(clock.monotonic() * 1_000)
        self._producers: OrderedDict[int, _KnownProducer] = OrderedDict()
        self._request_count = 0
        self._unsaved: set[int] = set()  # producers that have changed since they were copied
        self._last_id = 0  # the producer heard of last, since the copy; then it is ``_last``
        self._last = _KnownProducer(NEVER)
        self._highest = 0  # of ``_last``, those that follow included
        self._following: list[tuple[int, int, int]] = []  # sequence, begin, end
        self._encoded: dict[int, bytes] = {}  # as they were when they were copied
        self.forgotten_ms = NEVER
        self.doubtful_ms = NEVER
        self.is_changed = False  # since it was copied
        self._copied_set_ms = 0  # ``set_ms`` of what was copied

    def find(self, producer: ProducerSequence) -> Parts | None:
        """Return where the records of a request are, None if it is not stored.

        Raises OutcomeForgotten if nobody knows.
        """
        self._take_following()
        held = self._producers.get(producer.producer_id)
        sequence = producer.sequence
        if held is not None:
            parts = held.requests.get(sequence)
            if parts:
                return parts
            if parts is not None:
                raise OutcomeForgotten(*producer[:2], "nobody knows whether all of it is stored")
            if sequence <= held.forgotten:
                raise OutcomeForgotten(
                    *producer[:2], f"sequences up to {held.forgotten} are forgotten"
                )
        if producer.age_ms:
            sent_ms = self._now_ms() - min(producer.age_ms, _AGE_MAX_MS) - WAY_MS
            if sent_ms <= self.doubtful_ms:
                raise OutcomeForgotten(*producer[:2], "the log has lost records of that time")
            if sent_ms <= (self.forgotten_ms if held is None else held.unknown_ms):
                raise OutcomeForgotten(*producer[:2], "too many producers were met since")
        return None

    def is_new(self, producer_id: int, sequence: int) -> bool:
        """Whether ``find`` has nothing against a request that is sent for the first time."""
        self._take_following()
        held = self._producers.get(producer_id)
        return held is None or (sequence > held.forgotten and sequence not in held.requests)

    def note(
        self, producer_id: int, sequence: int, parts: Parts, heard_ms: int | None = None
    ) -> None:
        """Take in that a request is stored, or more of it; ``heard_ms`` is when that was, None: now."""
        self._take_following()
        held = self._last if producer_id == self._last_id else self._heard_of(producer_id)
        self._add(held, {sequence: parts}, self._now_ms() if heard_ms is None else heard_ms)
        self._highest = held.highest

    def is_next(self, producer_id: int, sequence: int) -> bool:
        """Whether a request follows all that are known of the producer heard of last, and so is new."""
        return sequence > self._highest and producer_id == self._last_id

    def note_next(self, sequence: int, begin: int, end: int) -> None:
        """Take in that a request is stored which ``is_next``."""
        self._highest = sequence
        following = self._following
        following.append((sequence, begin, end))
        if len(following) >= FOLLOWING_MAX:
            self._take_following()

    def _take_following(self) -> None:
        """Take in what was written down. Its producer was heard of now at the latest."""
        if self._following:
            requests: dict[int, Parts] = {
                sequence: (begin, end) for sequence, begin, end in self._following
            }
            self._following.clear()
            self._add(self._last, requests, self._now_ms())

    def _add(self, held: _KnownProducer, requests: dict[int, Parts], heard_ms: int) -> None:
        """Add requests to those of a producer, and forget what is too much."""
        before = len(held.requests)
        held.requests.update(requests)
        held.highest = max(held.highest, *requests)
        held.last_ms = heard_ms
        too_many = len(held.requests) - SEQUENCES_MAX
        if too_many > 0:
            oldest = list(islice(held.requests, too_many))
            for sequence in oldest:
                del held.requests[sequence]
            held.forgotten = max(held.forgotten, *oldest)
        self._request_count += len(held.requests) - before
        if self._request_count > REQUESTS_MAX or len(self._producers) > PRODUCERS_MAX:
            self._forget_producer()

    def _heard_of(self, producer_id: int) -> _KnownProducer:
        """Return the producer that is heard of now, made if it was not known, as the last one to be forgotten."""
        producers = self._producers
        held = producers.get(producer_id)
        if held is None:
            held = producers[producer_id] = _KnownProducer(self.forgotten_ms)
        else:
            producers.move_to_end(producer_id)
        self._unsaved.add(producer_id)
        self.is_changed = True
        self._last_id, self._last = producer_id, held
        return held

    def _now_ms(self) -> int:
        return self._shift_ms + int(self._monotonic() * 1_000)

    def _forget_producer(self) -> None:
        self._last_id = 0
        _, held = self._producers.popitem(last=False)
        self._request_count -= len(held.requests)
        self.forgotten_ms = max(self.forgotten_ms, held.last_ms)

    # ---- to and from the disk

    @property
    def is_clock_set(self) -> bool:
        """Whether the wall clock was set since it was copied: what was copied tells its times by the former one."""
        return abs(self._set_ms() - self._copied_set_ms) >= SET_MS_MIN

    def _set_ms(self) -> int:
        clock = self._clock
        return clock.now_ms() - int(clock.monotonic() * 1_000) - self._shift_ms

    def copied(self, commit_offset: int) -> Callable[[], bytes]:
        """Return what encodes all of it as it is now; called once, after the lock is released.

        ``commit_offset`` is the end of the log that this has. Of producers that have not changed since the
        copy before nothing is copied.
        """
        self._take_following()
        set_ms = self._copied_set_ms = self._set_ms()
        head = WindowsHead(commit_offset, set_ms, self.forgotten_ms, self.doubtful_ms)
        ids = list(self._producers)
        changed = [
            held.copied(producer_id)
            for producer_id in self._unsaved
            if (held := self._producers.get(producer_id)) is not None
        ]
        self._unsaved.clear()
        self._last_id = 0
        self.is_changed = False

        def encode() -> bytes:
            encoded = self._encoded
            encoded.update((block.producer_id, encode_block(block)) for block in changed)
            self._encoded = {producer_id: encoded[producer_id] for producer_id in ids}
            return encode_windows(head, list(self._encoded.values()))

        return encode

    def restore(self, head: WindowsHead, blocks: list[ProducerBlock], end_offset: int) -> None:
        """Take in what was saved, but for what lies beyond the end of the log: a request that it ends in is torn."""
        now_ms = self._now_ms()

        def time_of(saved_ms: int) -> int:
            """Return a time by the clock of now, which may have been set back."""
            return min(saved_ms + head.set_ms, now_ms)

        self.forgotten_ms = time_of(head.forgotten_ms)
        self.doubtful_ms = time_of(head.doubtful_ms)
        for block in blocks:
            held = self._producers[block.producer_id] = _KnownProducer(time_of(block.unknown_ms))
            held.last_ms, held.forgotten = time_of(block.last_ms), block.forgotten
            held.requests = {
                sequence: left
                for sequence, parts in block.requests.items()
                if (left := _left_of(parts, end_offset)) is not None
            }
            held.highest = max((held.forgotten, *held.requests))
            self._request_count += len(held.requests)
        self._unsaved = set(self._producers)
        self._last_id = 0

    def doubt(self, until_ms: int) -> None:
        """Take in that requests which were sent up to a time may be stored and not known."""
        self.doubtful_ms = max(self.doubtful_ms, until_ms)
        self.is_changed = True

    def parts_of(self, producer_id: int, sequence: int) -> Parts | None:
        """Return where records of a request are, None if it is not known."""
        self._take_following()
        held = self._producers.get(producer_id)
        return None if held is None else held.requests.get(sequence)


class StoredAlready(PicklableError):
    """A request is in the log already, or some of its records are."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(f"it is stored: {parts}")
        self.parts = parts


def is_sequence(producer: ProducerSequence) -> bool:
    """Whether the numbers are those that a producer may send."""
    producer_id, sequence, age_ms = producer
    return 0 < producer_id <= PRODUCER_ID_MAX and 0 < sequence <= SEQUENCE_MAX and age_ms >= 0


def check_not_busy(against: Exception) -> None:
    """Raise what is against a first attempt if it says that nothing is, but for the moment."""
    if isinstance(against, StoreBusy):
        raise against


def check_untold(producer: ProducerSequence, torn: Parts) -> None:
    """Raise OutcomeForgotten unless a request may be stored that cannot say whose it is: a first attempt."""
    if producer.age_ms or torn:
        raise OutcomeForgotten(
            *producer[:2], "its first record has no room in its properties for whose it is"
        )
