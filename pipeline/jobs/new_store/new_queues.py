"""Queue offsets in a new store: which queues keep theirs, and where each slice goes on counting.

A queue that comes from one old queue, whole, keeps its offsets. One that is put together from several,
or has lost records, is counted from 0; where its consumers were is then found again by the first record
that they had not had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from pipeline.errors import PipelineError
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    decode_properties,
)
from storage.kernels.columns import PROPERTIES_LENGTH, PROPERTIES_POSITION, ByteArray
from storage.view.queues.record_queues import QueueKey


class SourceQueue(NamedTuple):
    """A queue of one of the stores that are read; stores are numbered."""

    store: int
    topic: str
    queue_id: int

    @property
    def key(self) -> QueueKey:
        """The queue without its store."""
        return self.topic, self.queue_id


class QueuePart(NamedTuple):
    """Records of one old queue: how many, the first and last old offset, and whether none lacks."""

    records: int
    first: int
    last: int
    whole: bool

    def then(self, later: QueuePart) -> QueuePart:
        """Return the two as one."""
        whole = self.whole and later.whole and later.first == self.last + 1
        return QueuePart(self.records + later.records, self.first, later.last, whole)


@dataclass
class NewQueue:
    """A queue of a new store. ``kept``: every record has the offset that it had."""

    sources: set[SourceQueue]
    begin: int
    count: int
    kept: bool

    @property
    def end(self) -> int:
        """The offset after the last."""
        return self.begin + self.count


@dataclass
class NewQueues:
    """The queues of one new store."""

    queues: dict[QueueKey, NewQueue] = field(default_factory=dict)
    _key: Callable[[QueueKey], QueueKey] = field(default=lambda key: key)
    _next: dict[QueueKey, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        slices: Iterable[Mapping[SourceQueue, QueuePart]],
        key: Callable[[QueueKey], QueueKey],
        *,
        keep_offsets: bool,
    ) -> NewQueues:
        """Add up what slices give; ``key`` names the new queue of an old one."""
        joined: dict[SourceQueue, QueuePart] = {}
        for log_slice in slices:
            for source, part in log_slice.items():
                joined[source] = joined[source].then(part) if source in joined else part
        plan = cls({}, key)
        for source, part in joined.items():
            new = key(source.key)
            if new not in plan.queues:
                begin = part.first if keep_offsets else 0
                kept = part.whole and begin == part.first
                plan.queues[new] = NewQueue({source}, begin, part.records, kept)
                continue
            queue = plan.queues[new]
            queue.sources.add(source)
            queue.begin, queue.count, queue.kept = 0, queue.count + part.records, False
        plan._next = {name: queue.begin for name, queue in plan.queues.items()}
        return plan

    def advance(self, given: Mapping[SourceQueue, QueuePart]) -> dict[QueueKey, int]:
        """Return the next offset of each queue that a slice has records for, and count these."""
        nexts: dict[QueueKey, int] = {}
        for source, part in given.items():
            name = self._key(source.key)
            nexts.setdefault(name, self._next[name])
            self._next[name] += part.records
        return nexts


def light_offsets(data: ByteArray, rows: Any) -> dict[str, list[int]]:
    """Return the offsets in light queues that the records themselves have, by queue."""
    found: dict[str, list[int]] = {}
    for row in rows:
        at = int(row[PROPERTIES_POSITION])
        properties = decode_properties(data[at : at + int(row[PROPERTIES_LENGTH])].tobytes())
        names = properties.get(INNER_MULTI_DISPATCH, "").split(",")
        offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
        if len(names) == len(offsets):
            for name, offset in zip(names, offsets, strict=True):
                if name.startswith(LIGHT_QUEUE_PREFIX):
                    with suppress(ValueError):
                        found.setdefault(name, []).append(int(offset))
    return found


def refuse_moved_light_queues(slices: Sequence[Mapping[SourceQueue, list[int]]]) -> None:
    """Raise PipelineError if a light queue would not keep its offsets, which stand in its records."""
    joined: dict[SourceQueue, list[int]] = {}
    for log_slice in slices:
        for source, offsets in log_slice.items():
            joined.setdefault(source, []).extend(offsets)
    stores: dict[str, int] = {}
    for source, offsets in joined.items():
        fix = "leave the topics of its messages out, or in one store with all of them"
        if stores.setdefault(source.topic, source.store) != source.store:
            raise PipelineError(f"light queue {source.topic} is in several stores: {fix}")
        if any(later != offset + 1 for offset, later in pairwise(offsets)):
            raise PipelineError(f"light queue {source.topic} would lose messages: {fix}")
