"""Leases as a journal has them: what a start goes on with, and what an offline look at a store shows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.journal import Block, blocks_in
from storage.format.leases.journal import (
    EVENT_COLUMNS,
    EVENT_KIND,
    EVENT_SIZE,
    EVENT_STATE,
    EVENT_TIME,
    EVENTS,
    FIRST,
    FORGOTTEN,
    KEY,
    KIND_BITS,
    NAMES,
    NEXT,
    OWNED,
    decode_key,
)
from storage.journal.journal_file import JournalEnd, generations
from storage.kernels.leases import columns
from storage.leases.owners import Owners
from storage.leases.queues import NOWHERE, Place
from storage.leases.rows import LeaseRows

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem

Longs = npt.NDArray[np.int64]
_KIND_MASK: Final = (1 << KIND_BITS) - 1


class LeasedQueueName(NamedTuple):
    """Whose leases rows are: a group's in one queue of its topic, or of the topic's retry topic (``source``)."""

    group: str
    topic: str
    source: str
    queue_id: int
    incarnation: int


@dataclass(slots=True)
class LoadedQueue:
    """One queue of a group; ``last`` is the record before ``next_offset`` as it was handed out.

    ``begin_offset``: see ``LeasedQueue``.
    """

    name: LeasedQueueName
    rows: LeaseRows
    last: Place = NOWHERE
    begin_offset: int = 0


@dataclass(slots=True)
class LoadedJournal:
    """What a journal says; ``problem`` is what is wrong after its end."""

    end: JournalEnd
    key: bytes
    queues: dict[int, LoadedQueue] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    problem: str = ""
    was_set_back: bool = False  # the clock: leases were taken later than now

    def settle(self, now_ms: int) -> None:
        """Work out what the events do not say, and what becomes of times if the clock was set back since."""
        for queue in self.queues.values():
            if _is_back(queue.rows.live, now_ms):
                self.was_set_back = True
            queue.rows.settle(now_ms)
            states = queue.rows.live[:, columns.STATE]
            if len(states):
                self.owners.skip(int(states.max() >> columns.OWNER_BITS) - 1)


def _is_back(live: Longs, now_ms: int) -> bool:
    """Have what was leased later than now last no longer than it was leased for; return whether there is any."""
    ahead_ms = live[:, columns.LEASED_AT] - now_ms
    is_ahead = ahead_ms > 0
    moved = is_ahead & (live[:, columns.VISIBLE_AT] != columns.NEVER)
    live[moved, columns.VISIBLE_AT] -= ahead_ms[moved]
    return bool(is_ahead.any())


class _ImpossibleEvent(Exception):
    """An event that cannot follow those before it: bytes with the right checksum that no code of ours wrote."""


def load_journal(
    filesystem: FileSystem, directory: Path, now_ms: int
) -> tuple[LoadedJournal | None, list[tuple[str, str]]]:
    """Return what the newest journal that can be read says, None without one, and what is wrong with which file.

    Of a directory without a journal, which was made for one, that is said under the name "". Raises OSError, StoreBusy.
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
    if first is None or first.kind != KEY:
        raise ValueError("it does not begin with a key")
    loaded = LoadedJournal(JournalEnd(generation), decode_key(first.payload))
    loaded.end.note(first)
    for block in blocks:
        try:
            _take_in(loaded, block)
        except (_ImpossibleEvent, ValueError, KeyError, TypeError) as error:
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


def _take_in(loaded: LoadedJournal, block: Block) -> None:
    if block.kind == NAMES:
        _take_in_names(loaded, json.loads(bytes(block.payload)))
    elif block.kind == EVENTS and len(block.payload) % EVENT_SIZE == 0:
        _take_in_events(loaded, block.payload)
    else:
        raise ValueError(f"a block of kind {block.kind} and {len(block.payload)} bytes")


def _take_in_names(loaded: LoadedJournal, document: dict[str, Any]) -> None:
    for number, group, topic, source, queue_id, incarnation, is_orderly in document.get(
        "queues", ()
    ):
        known = loaded.queues.get(int(number))
        if known is None:
            name = LeasedQueueName(
                str(group), str(topic), str(source), int(queue_id), int(incarnation)
            )
            rows = LeaseRows(is_orderly=bool(is_orderly))
            loaded.queues[int(number)] = LoadedQueue(name, rows)
        else:
            known.rows.set_orderly(is_orderly=bool(is_orderly), now_ms=0)
    for number, begin_offset in document.get("begins", ()):
        loaded.queues[int(number)].begin_offset = int(begin_offset)
    for number, client_id in document.get("owners", ()):
        loaded.owners.restore(str(client_id), int(number))


def _take_in_events(loaded: LoadedJournal, payload: memoryview) -> None:
    events = np.frombuffer(payload, "<i8").reshape(-1, EVENT_COLUMNS)
    at, end = 0, len(events)
    while at < end:
        number, kind = divmod(int(events[at, EVENT_KIND]), 1 << KIND_BITS)
        if kind == OWNED:
            loaded.owners.set_until(int(events[at, FIRST]), int(events[at, EVENT_TIME]))
            at += 1
            continue
        if kind == FORGOTTEN:
            loaded.queues.pop(number, None)
            at += 1
            continue
        queue = loaded.queues[number]
        begin = at
        at, is_impossible = queue.rows.apply(events, at, end)
        if is_impossible:
            raise _ImpossibleEvent(f"an event of kind {int(events[at, EVENT_KIND]) & _KIND_MASK}")
        last = int(events[at - 1, EVENT_KIND]) & _KIND_MASK
        for line in (at - 1,) if last == NEXT else range(begin, at):
            if int(events[line, EVENT_KIND]) & _KIND_MASK == NEXT:
                queue.last = Place(int(events[line, EVENT_STATE]), int(events[line, EVENT_TIME]))
                queue.begin_offset = min(queue.begin_offset, int(events[line, FIRST]))
