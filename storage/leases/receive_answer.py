"""The answer to one receive: what is found of each queue, and the receipt handles."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.errors import QueueRebuilding
from storage.format.leases.receipt_handle import HANDLE_SIZE, PACKED_SIZE
from storage.kernels.leases import columns, handles
from storage.leases.leased_queue import Events, HandedOut, LeasedQueue
from storage.leases.owners import NO_OWNER
from storage.leases.queues import StoreQueues
from storage.leases.values import DeadMessages, ReceivedBatch, ReceiveQuestion
from storage.message import Damage

Longs = npt.NDArray[np.int64]
UNITS_MAX: Final = 1 << 18  # looked at in one receive: a filter may drop all of them
PREDICATE_UNITS: Final = 16  # what a record costs of these at least that a predicate has to look at
RECORD_RESERVE: Final = 64 << 10  # bytes of an answer that are not worth another pull
_NO_ATTEMPTS: Final = np.empty(0, np.int32)


class ReceiveAnswer:
    """What one receive has found so far."""

    def __init__(self, question: ReceiveQuestion, now_ms: int, lease_ms: int, owner: int) -> None:
        self.now_ms = now_ms
        self.visible_at = now_ms + lease_ms
        self.owner = owner
        self.messages_left = question.max_messages
        self.bytes_left = question.max_bytes
        self.events = Events()
        self.damaged: list[Damage] = []
        self.dead: list[DeadMessages] = []
        self.parts: list[tuple[LeasedQueue, HandedOut]] = []
        self.units_left = UNITS_MAX
        self.leaves_some = False  # what is next is too long for it
        self.rebuilding: QueueRebuilding | None = None  # of a queue that was passed over

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be put into it."""
        return (
            self.messages_left <= 0
            or self.units_left <= 0
            or (bool(self.parts) and self.bytes_left < RECORD_RESERVE)
        )

    @contextmanager
    def passing_over(self) -> Iterator[None]:
        """Go on with the other queues where one is being rebuilt."""
        try:
            yield
        except QueueRebuilding as error:
            self.rebuilding = error

    def take(self, queue: LeasedQueue, found: HandedOut) -> None:
        """Add records."""
        if len(found.queue_offsets):
            self.parts.append((queue, found))
            self.messages_left -= len(found.queue_offsets)
            self.bytes_left -= sum(map(len, found.slices))

    def batch(self, key: tuple[int, int]) -> ReceivedBatch:
        """Return the answer, with receipt handles by a key.

        Raises QueueRebuilding if nothing was found and a queue was passed over.
        """
        if self.rebuilding is not None and not (self.parts or self.damaged or self.dead):
            raise self.rebuilding
        if not self.parts:
            return ReceivedBatch(
                attempts=_NO_ATTEMPTS, lease_end_ms=self.visible_at, damaged=tuple(self.damaged),
                dead=tuple(self.dead), has_more=self.is_full or self.leaves_some,
            )  # fmt: skip
        count = sum(len(found.queue_offsets) for _, found in self.parts)
        sealed = np.empty(count * HANDLE_SIZE, np.uint8)
        scratch = np.empty(PACKED_SIZE, np.uint8)
        position = 0
        for queue, found in self.parts:
            position = handles.seal_handles(
                sealed, position, found.queue_offsets, found.attempts, queue.kind,
                queue.name.queue_id, self.now_ms, *key, scratch,
            )  # fmt: skip
        attempts = [found.attempts for _, found in self.parts]
        return ReceivedBatch(
            record_count=count,
            attempts=np.concatenate(attempts).astype(np.int32),
            receipt_handles=sealed.tobytes(),
            lease_end_ms=self.visible_at,
            slices=tuple(view for _, found in self.parts for view in found.slices),
            damaged=tuple(self.damaged),
            dead=tuple(self.dead),
            has_more=self.is_full or self.leaves_some,
        )


class KnownAttempts:
    """Receives of an orderly group by their attempt id, the latest ones."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._known: OrderedDict[str, list[tuple[LeasedQueue, Longs, int, int]]] = OrderedDict()

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    def remember(self, attempt_id: str, answer: ReceiveAnswer) -> None:
        """Keep what an attempt was given."""
        self._known[attempt_id] = [
            (queue, found.queue_offsets, answer.now_ms, answer.visible_at)
            for queue, found in answer.parts
        ]
        self._known.move_to_end(attempt_id)
        while len(self._known) > self._count_max:
            self._known.popitem(last=False)

    def again(self, attempt_id: str, now_ms: int, queues: StoreQueues) -> ReceiveAnswer | None:
        """Return what is still leased of what an attempt was given; None if nothing is."""
        answer: ReceiveAnswer | None = None
        for queue, offsets, leased_at, visible_at in self._known.get(attempt_id, ()):
            rows = queue.rows
            indexes = rows.find(offsets)
            held = rows.rows[indexes[indexes >= 0]]
            still = (held[:, columns.LEASED_AT] == leased_at) & (
                held[:, columns.VISIBLE_AT] > now_ms
            )
            still &= (held[:, columns.STATE] >> columns.STATE_BITS) & 0xFF == columns.LEASED
            held = held[still]
            if not len(held):
                continue
            if answer is None:
                answer = ReceiveAnswer(
                    ReceiveQuestion(), leased_at, visible_at - leased_at, NO_OWNER
                )
            found = queues.records_at(
                queue.name.source, queue.name.queue_id,
                np.ascontiguousarray(held[:, columns.OFFSET]), max_bytes=1 << 62,
            )  # fmt: skip
            held = held[np.isin(held[:, columns.OFFSET], found.queue_offsets, assume_unique=True)]
            attempts = held[:, columns.STATE] & columns.ATTEMPTS_MAX
            answer.take(queue, HandedOut(found.queue_offsets, attempts, found.slices))
        return answer
