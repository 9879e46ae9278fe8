"""Which requests of producers are stored, and where: what tells a repeated request from a new one.

A producer is an id that a client has drawn, and counts its requests; a repeat has its sequence again.

1. Every request that is in the log is in the window of its producer, or in what the window has
   forgotten: the record says whose it is (``storage.format.producers.sequence``), and a start reads
   what the log has got since the windows were saved.
2. Of a producer the last SEQUENCES_MAX requests are known, and of those before how high their
   sequences went: ``forgotten``. A sequence at or below it that is not known is refused.
3. Producers that were not heard of for the longest time are forgotten when there are too many. One
   that is not known could be one of them if its request was first sent before ``forgotten_ms``, the
   last time one of them was heard of.
4. After a power cut in an async mode the log may have holes, and the first record of a request with
   them. What was first sent before ``doubtful_ms`` and is not known could have been stored in part.

So a repeat that is not known is stored if its age says that it cannot be one of those, and is
refused otherwise: never is it stored twice. The age is told by the client when it sends; WAY_MS is
for the way.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from storage.errors import OutcomeForgotten
from storage.format.producers.windows import (
    Parts,
    ProducerBlock,
    WindowsHead,
    encode_block,
    encode_windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.clock import Clock
    from storage.message import ProducerSequence

SEQUENCES_MAX: Final = (
    512  # of a producer; twice what a client lets lie between two that are not answered
)
PRODUCERS_MAX: Final = 16_384
REQUESTS_MAX: Final = 1 << 17  # of all producers
WAY_MS: Final = 60_000
NEVER: Final = -1 << 62
_AGE_MAX_MS: Final = 1 << 61


class _KnownProducer:
    """What is known of one producer."""

    __slots__ = ("forgotten", "highest", "last_ms", "requests")

    def __init__(self) -> None:
        self.requests: dict[int, Parts] = {}
        self.highest = 0
        self.forgotten = 0
        self.last_ms = NEVER

    def copied(self, producer_id: int) -> ProducerBlock:
        """Return a copy of what it is now."""
        requests = tuple(self.requests.items())
        return ProducerBlock(producer_id, self.last_ms, self.forgotten, requests)


class ProducerWindows:
    """The requests of all producers. Used under the lock of the store's appends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._producers: OrderedDict[int, _KnownProducer] = OrderedDict()
        self._request_count = 0
        self.forgotten_ms = NEVER
        self.doubtful_ms = NEVER
        self.is_changed = False  # since it was saved

    def find(self, producer: ProducerSequence) -> Parts | None:
        """Return where the records of a request are, None if it is not stored.

        Raises OutcomeForgotten if nobody knows.
        """
        held = self._producers.get(producer.producer_id)
        sequence = producer.sequence
        if held is not None:
            if sequence > held.highest and not producer.age_ms:
                return None
            parts = held.requests.get(sequence)
            if parts is not None:
                return parts
            if sequence <= held.forgotten:
                raise OutcomeForgotten(
                    *producer[:2], f"sequences up to {held.forgotten} are forgotten"
                )
        if producer.age_ms:
            sent_ms = self._clock.now_ms() - min(producer.age_ms, _AGE_MAX_MS) - WAY_MS
            if sent_ms <= self.doubtful_ms:
                raise OutcomeForgotten(*producer[:2], "the log has lost records of that time")
            if held is None and sent_ms <= self.forgotten_ms:
                raise OutcomeForgotten(*producer[:2], "too many producers were met since")
        return None

    def note(self, producer_id: int, sequence: int, parts: Parts, now_ms: int) -> None:
        """Take in that a request is stored, or more of it."""
        producers = self._producers
        held = producers.get(producer_id)
        if held is None:
            held = producers[producer_id] = _KnownProducer()
        else:
            producers.move_to_end(producer_id)
        requests = held.requests
        if sequence not in requests:
            self._request_count += 1
        requests[sequence] = parts
        if sequence > held.highest:
            held.highest = sequence
        held.last_ms = now_ms
        self.is_changed = True
        if len(requests) > SEQUENCES_MAX:
            self._forget_oldest(held)
        if self._request_count > REQUESTS_MAX or len(producers) > PRODUCERS_MAX:
            self._forget_producer()

    def _forget_oldest(self, held: _KnownProducer) -> None:
        sequence = next(iter(held.requests))
        del held.requests[sequence]
        held.forgotten = max(held.forgotten, sequence)
        self._request_count -= 1

    def _forget_producer(self) -> None:
        _, held = self._producers.popitem(last=False)
        self._request_count -= len(held.requests)
        self.forgotten_ms = max(self.forgotten_ms, held.last_ms)

    # ---- to and from the disk

    def copied(self, commit_offset: int) -> Callable[[], bytes]:
        """Return what encodes all of it as it is now, for when the lock is released again.

        ``commit_offset`` is the end of the log that this has.
        """
        head = WindowsHead(commit_offset, self.forgotten_ms, self.doubtful_ms)
        copies = [held.copied(producer_id) for producer_id, held in self._producers.items()]
        self.is_changed = False
        return lambda: encode_windows(head, list(map(encode_block, copies)))

    def restore(self, head: WindowsHead, blocks: list[ProducerBlock], end_offset: int) -> None:
        """Take in what was saved, but for what lies beyond the end of the log."""
        now_ms = self._clock.now_ms()
        self.forgotten_ms = min(head.forgotten_ms, now_ms)  # the clock may have been set back
        self.doubtful_ms = min(head.doubtful_ms, now_ms)
        for block in blocks:
            held = self._producers[block.producer_id] = _KnownProducer()
            held.last_ms, held.forgotten = min(block.last_ms, now_ms), block.forgotten
            held.requests = {
                sequence: parts for sequence, parts in block.requests if max(parts) <= end_offset
            }
            held.highest = max([held.forgotten, *held.requests])
            self._request_count += len(held.requests)

    def forget(self, producer_id: int, sequence: int) -> None:
        """Take in that of a request nobody knows whether all of it is stored."""
        held = self._producers.get(producer_id)
        if held is not None and held.requests.pop(sequence, None) is not None:
            self._request_count -= 1

    def is_new(self, producer_id: int, sequence: int) -> bool:
        """Whether a request that is sent for the first time is stored without a look at what is known."""
        held = self._producers.get(producer_id)
        return held is None or sequence > held.highest

    def doubt(self, until_ms: int) -> None:
        """Take in that requests which were sent up to a time may be stored and not known."""
        self.doubtful_ms = max(self.doubtful_ms, until_ms)
        self.is_changed = True

    def parts_of(self, producer_id: int, sequence: int) -> Parts:
        """Return where records of a request are, nothing if it is not known."""
        held = self._producers.get(producer_id)
        return () if held is None else held.requests.get(sequence, ())
