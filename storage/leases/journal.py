"""The journal of leases: what calls add to it, what a start reads of it, and what a new one begins with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.errors import UnsupportedFormat
from storage.format.journal import Block, blocks_in
from storage.format.lease_journal import (
    BEFORE,
    COMMITTED_AT,
    DONE,
    EVENT,
    EVENTS,
    FORGOTTEN,
    HEAD,
    HEAD_PAYLOAD,
    KIND_BITS,
    NAMES,
    NEXT,
    SET,
    VERSION,
    encode_names,
)
from storage.journal.journal import JournalEnd, generations
from storage.leases.queues import NOWHERE, Place, retry_topics
from storage.leases.ranges import (
    ATTEMPTS_MAX,
    LEASED,
    NEVER,
    WAITING,
    LeasedRanges,
    State,
    offsets_in,
)

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem

_KIND_MASK: Final = (1 << KIND_BITS) - 1
_STATE_BITS: Final = 24
_OWNER_BITS: Final = 32


class LeasedQueueName(NamedTuple):
    """Whose leases they are: a group's in one queue of its topic, or of the topic's retry topic (``source``)."""

    group: str
    topic: str
    source: str
    queue_id: int
    incarnation: int


class JournaledQueue:
    """One queue of a group as the journal keeps it.

    ``last`` is the record before ``next_offset`` when it was handed out. ``committed_offset`` is what
    consumerOffset.json was last given, -1 for nothing; ``kind`` is that of receipt handles.
    """

    def __init__(
        self, number: int, name: LeasedQueueName, ranges: LeasedRanges, last: Place = NOWHERE
    ) -> None:
        self.number = number
        self.name = name
        self.kind = (name.topic, *retry_topics(name.group, name.topic)).index(name.source)
        self.ranges = ranges
        self.last = last
        self.committed_offset = -1
        self.begin_offset = 0  # where a group began at the latest message, or was set back to since


class Changes:
    """What one call has changed, for the journal; ``sooner`` has group and topic of what may be due sooner now."""

    def __init__(self) -> None:
        self.sooner: set[tuple[str, str]] = set()
        self._events = bytearray()
        self._queues: list[list[object]] = []
        self._owners: list[tuple[int, str, int]] = []

    def set(self, queue: JournaledQueue, number: int, mask: int, state: State) -> None:
        """Note the state of messages of a block; in an orderly group of each, with its message group."""
        ranges = queue.ranges
        kind, packed = queue.number << KIND_BITS | SET, _packed(state)
        if not ranges.is_orderly:
            self._events += EVENT.pack(
                kind, number, mask, state.visible_at, state.leased_at, packed, 0
            )
            return
        for queue_offset in offsets_in(number, mask):
            self._events += EVENT.pack(
                kind, number, 1 << queue_offset % 64, state.visible_at, state.leased_at, packed,
                ranges.group_of(queue_offset),
            )  # fmt: skip

    def done(self, queue: JournaledQueue, number: int, mask: int) -> None:
        """Note that messages of a block are done."""
        self._events += EVENT.pack(queue.number << KIND_BITS | DONE, number, mask, 0, 0, 0, 0)

    def note(self, kind: int, queue: JournaledQueue, queue_offset: int) -> None:
        """Note what is not about single messages."""
        place = queue.last if kind == NEXT else NOWHERE
        self._events += EVENT.pack(
            queue.number << KIND_BITS | kind, queue_offset, 0, place.store_timestamp_ms,
            place.commit_offset, 0, 0,
        )  # fmt: skip

    def name(self, queue: JournaledQueue) -> None:
        """Note what a queue's number stands for, whether it is orderly, and where the group began."""
        self._queues.append(
            [queue.number, *queue.name, queue.ranges.is_orderly, queue.begin_offset]
        )

    def own(self, owners: Iterable[tuple[int, str, int]]) -> None:
        """Note clients' numbers, and until when they have renewed."""
        self._owners += owners

    def keep(self, queue: JournaledQueue) -> None:
        """Note all of a queue."""
        self.name(queue)
        for number, mask, state in queue.ranges.all():
            self.set(queue, number, mask, state)
        self.note(NEXT, queue, queue.ranges.next_offset)
        if queue.committed_offset >= 0:
            self.note(COMMITTED_AT, queue, queue.committed_offset)

    def blocks(self) -> list[tuple[int, bytes]]:
        """Return them as blocks of the journal."""
        names = {"queues": self._queues, "owners": self._owners}
        blocks = [(NAMES, encode_names(names))] if self._queues or self._owners else []
        return [*blocks, (EVENTS, bytes(self._events))] if self._events else blocks


def _packed(state: State) -> int:
    attempts = min(state.attempts, ATTEMPTS_MAX)
    return (state.owner + 1) << _OWNER_BITS | state.kind << _STATE_BITS | attempts


def _state(packed: int, visible_at: int, leased_at: int) -> State:
    kind = packed >> _STATE_BITS & 0xFF
    if not LEASED <= kind <= WAITING:
        raise ValueError(f"a state of kind {kind}")
    owner = (packed >> _OWNER_BITS) - 1
    return State(kind, packed & ATTEMPTS_MAX, visible_at, leased_at, owner)


class LoadedJournal:
    """What a journal says; ``problem`` is what is wrong after its end."""

    def __init__(self, end: JournalEnd) -> None:
        self.end = end
        self.queues: dict[int, JournaledQueue] = {}
        self.owners: dict[int, tuple[str, int]] = {}  # client id, and until when it has renewed
        self.problem = ""
        self.was_set_back = False  # the clock: leases were taken later than now

    def take_in(self, block: Block) -> None:
        """Take in the next block. Raises ValueError, KeyError or TypeError for one that is not understood."""
        if block.kind == NAMES:
            names = json.loads(bytes(block.payload))
            for number, client_id, until_ms in names["owners"]:
                self.owners[number] = client_id, until_ms
            for number, *name, is_orderly, begin_offset in names["queues"]:
                if number in self.queues:
                    ranges = self.queues[number].ranges
                    ranges.set_orderly(is_orderly=is_orderly, now_ms=0)
                    continue
                ranges = LeasedRanges(is_orderly=is_orderly)
                queue = JournaledQueue(number, LeasedQueueName(*name), ranges)
                queue.begin_offset = begin_offset
                self.queues[number] = queue
        elif block.kind == EVENTS and len(block.payload) % EVENT.size == 0:
            for kind, *event in EVENT.iter_unpack(block.payload):
                self._apply(kind & _KIND_MASK, kind >> KIND_BITS, *event)
        else:
            raise ValueError(f"a block of kind {block.kind} and {len(block.payload)} bytes")

    def _apply(
        self, kind: int, queue_number: int, first: int, mask: int, time_ms: int, second: int,
        packed: int, message_group: int,
    ) -> None:  # fmt: skip
        queue = self.queues[queue_number]
        ranges = queue.ranges
        if kind == SET:
            ranges.set(first, mask, _state(packed, time_ms, second))
            if ranges.is_orderly:
                for queue_offset in offsets_in(first, mask):
                    ranges.join_line(queue_offset, message_group)
        elif kind == DONE:
            ranges.set(first, mask, None)
        elif kind == BEFORE:
            ranges.drop_before(first, 0)
        elif kind == NEXT:
            ranges.drop_from(first, 0)
            ranges.next_offset = first
            queue.last = Place(second, time_ms)
            queue.begin_offset = min(queue.begin_offset, first)
        elif kind == COMMITTED_AT:
            queue.committed_offset = first
        elif kind == FORGOTTEN:
            del self.queues[queue_number]
        else:
            raise ValueError(f"an event of kind {kind}")

    def settle(self, now_ms: int) -> None:
        """Free what no event frees; if the clock was set back, let leases last no longer than they were taken for."""
        for queue in self.queues.values():
            queue.ranges.free_first(now_ms)
            for number, mask, state in queue.ranges.all():
                ahead_ms = state.leased_at - now_ms
                if ahead_ms > 0:
                    self.was_set_back = True
                    if state.visible_at != NEVER:
                        moved = state._replace(visible_at=state.visible_at - ahead_ms)
                        queue.ranges.set(number, mask, moved)


def load_journal(
    filesystem: FileSystem, directory: Path, now_ms: int
) -> tuple[LoadedJournal | None, list[tuple[str, str]]]:
    """Return what the newest journal that can be read says, None without one, and what is wrong with which file.

    Of a directory without a journal, which was made for one, that is said under the name "". Raises
    UnsupportedFormat for a journal of another version, OSError, StoreBusy.
    """
    problems = []
    files = generations(filesystem, directory)
    if not files and filesystem.exists(directory):
        problems.append(("", "no journal is there: groups go on at their offsets"))
    for generation, path in files:
        try:
            loaded = _load(filesystem, path, generation)
        except ValueError as error:
            problems.append((path.name, f"cannot be read: {error}"))
            continue
        if loaded.problem:
            problems.append((path.name, loaded.problem))
        loaded.settle(now_ms)
        return loaded, problems
    return None, problems


def _load(filesystem: FileSystem, path: Path, generation: int) -> LoadedJournal:
    file = filesystem.open(path, writable=False)
    try:
        if not file.size:
            raise ValueError("it is empty")
        array = file.map(writable=False).array
    finally:
        file.close()
    blocks = blocks_in(array.data)
    first = next(blocks, None)
    if first is None or first.kind != HEAD or len(first.payload) < HEAD_PAYLOAD.size:
        raise ValueError("it does not begin with its version")
    (version,) = HEAD_PAYLOAD.unpack_from(first.payload)
    if version != VERSION:
        raise UnsupportedFormat(
            f"{path.parent.name}/{path.name}: version {version} of the journal of leases;"
            f" this code reads {VERSION}"
        )
    loaded = LoadedJournal(JournalEnd(generation))
    loaded.end.note(first)
    for block in blocks:
        try:
            loaded.take_in(block)
        except (ValueError, KeyError, TypeError) as error:
            loaded.problem = f"what stands at {loaded.end.position} is not understood: {error}"
            return loaded
        loaded.end.note(block)
    left = np.flatnonzero(array[loaded.end.position :])
    if len(left):
        loaded.problem = (
            f"after {loaded.end.position} there are {int(left[-1]) + 1} bytes that are not whole blocks: what"
            " was acknowledged with them is handed out again"
        )
    return loaded
