"""The answer to one receive: what is found of each queue, and the receipt handles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import QueueRebuilding
from storage.format.receipt_handle import PACKED_SIZE, encode_handles
from storage.kernels.leases import seal_handles
from storage.leases.journal import Changes, JournaledQueue
from storage.leases.values import DeadMessages, ReceivedBatch, ReceiveQuestion
from storage.message import Damage

Longs = npt.NDArray[np.int64]
UNITS_MAX: Final = 1 << 18  # looked at in one receive: a filter may drop all of them
PREDICATE_UNITS: Final = 16  # what a record costs of these at least that a predicate has to look at
RECORD_RESERVE: Final = 64 << 10  # bytes of an answer that are not worth another pull


class ReceivedPart(NamedTuple):
    """Records of one queue that are handed out, in order."""

    queue: JournaledQueue
    queue_offsets: Longs
    attempts: Longs
    slices: tuple[memoryview, ...]


class ReceiveAnswer:
    """What one receive has found so far."""

    def __init__(
        self, question: ReceiveQuestion, now_ms: int, visible_at: int, owner: int, changes: Changes
    ) -> None:
        self.now_ms = now_ms
        self.visible_at = visible_at
        self.owner = owner
        self.changes = changes
        self.messages_left = question.max_messages
        self.bytes_left = question.max_bytes
        self.damaged: list[Damage] = []
        self.dead: list[DeadMessages] = []
        self.parts: list[ReceivedPart] = []
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

    def take(self, part: ReceivedPart) -> None:
        """Add records."""
        if len(part.queue_offsets):
            self.parts.append(part)
            self.messages_left -= len(part.queue_offsets)
            self.bytes_left -= sum(map(len, part.slices))

    def batch(self, key: tuple[int, int]) -> ReceivedBatch:
        """Return the answer, with receipt handles by a key.

        Raises QueueRebuilding if nothing was found and a queue was passed over.
        """
        if self.rebuilding is not None and not (self.parts or self.damaged or self.dead):
            raise self.rebuilding
        attempts = np.concatenate([np.empty(0, np.int64), *(each.attempts for each in self.parts)])
        packed = np.empty(len(attempts) * PACKED_SIZE, np.uint8)
        position = 0
        for queue, offsets, times, _ in self.parts:
            position = seal_handles(
                packed, position, offsets, times, queue.kind, queue.name.queue_id, self.now_ms, *key,
            )  # fmt: skip
        return ReceivedBatch(
            record_count=len(attempts),
            attempts=attempts.astype(np.int32),
            receipt_handles=encode_handles(packed.tobytes()),
            lease_end_ms=self.visible_at,
            slices=tuple(view for part in self.parts for view in part.slices),
            damaged=tuple(self.damaged),
            dead=tuple(self.dead),
            has_more=self.is_full or self.leaves_some,
        )
