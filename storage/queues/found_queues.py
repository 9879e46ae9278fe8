"""The queues of a store as a start finds them, and as its repair leaves them: arrays, with no object a queue.

One look at all directories takes in each queue that has one file, of the right length, and ends
near the begin of its data or near their end, which nearly all queues do when there are thousands. A
queue becomes an object when somebody asks for it, and most are not asked for before the start is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import file_name, parse_file_name
from storage.kernels.queues.found import (
    FOUND_COLUMN_COUNT,
    HELD_END,
    HELD_POSITION,
    LEFT_OUT,
    NEXT_OFFSET,
    NOT_MET,
    find_ends,
    meet_units,
)
from storage.queues.found_end import KEPT_BYTES_MAX, FoundEnd
from storage.tables.topics import QUEUE_COUNT_MAX
from storage.view.queues.queue_files import BESIDE, QUEUES_AT_ONCE
from storage.view.queues.runs import QueueRun

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray
    from storage.files.only_files import OnlyFile
    from storage.view.queues.record_queues import QueueKey
    from storage.view.queues.units import UnitGroups

Longs = npt.NDArray[np.int64]

_START: Final = 0  # queue offset of the file's first unit
_END: Final = 1  # of the queue, by the limit
_DATA_SIZE: Final = 2
_HELD: Final = 3  # position of the unit at the end, among those that were held
_PLACE_COLUMN_COUNT: Final = 4


class _LookedAt(NamedTuple):
    """What a look at some queues has found."""

    keys: list[QueueKey]
    places: Longs  # a line a queue
    found: Longs  # the same, as the kernel has it
    held: ByteArray  # units after the ends
    others: list[QueueKey]  # that it takes more to look at


class FoundQueues:
    """Queues in order of topic and id. They end after their last unit of a record below ``limit_commit_offset``.

    ``others`` are the queues that have no place here. Used by one thread, or under the guard of the queues' files.
    """

    def __init__(
        self,
        seen: Iterable[tuple[str, int, OnlyFile | None]],
        limit_commit_offset: int,
        file_size: int,
    ) -> None:
        self.limit_commit_offset = limit_commit_offset
        self.is_settled = False  # whether all of the log was met that counts
        self._file_size = file_size
        self._file_starts: dict[str, int | None] = {}  # by name
        looks, left = [], iter(seen)
        while some := list(islice(left, QUEUES_AT_ONCE)):
            looks.append(self._look(some))
        self.others = [key for look in looks for key in look.others]
        self._take_in([look for look in looks if look.keys])

    # ---- the look

    def _look(self, seen: list[tuple[str, int, OnlyFile | None]]) -> _LookedAt:
        keys, places, units, others = [], [], [], []
        for topic, queue_id, file in seen:
            start = None if file is None else self._start_of(file)
            if file is None or start is None or not 0 <= queue_id < QUEUE_COUNT_MAX:
                others.append((topic, queue_id))
                continue
            end = -(-file.data_end // UNIT_SIZE)
            if file.tail:
                index = -(-file.tail_position // UNIT_SIZE)
                data = file.tail[index * UNIT_SIZE - file.tail_position :]
            else:
                index, data = 0, file.head[: end * UNIT_SIZE]
            keys.append((topic, queue_id))
            places.append((start // UNIT_SIZE, index, file.data_end))
            units.append(data.ljust((end - index) * UNIT_SIZE, b"\0"))
        all_units = np.frombuffer(b"".join(units), np.uint8)
        starts = np.zeros(len(units) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, units), np.int64, len(units)), out=starts[1:])
        ends, last_ends = np.empty(len(units), np.int64), np.empty(len(units), np.int64)
        count = find_ends(all_units, starts, self.limit_commit_offset, ends, last_ends)
        assert count == len(units)
        looked_at = np.array(places, np.int64).reshape(-1, 3)
        # The end of a file's data tells where the queue ends if that is in it, with enough units before it.
        is_known = (looked_at[:, 1] == 0) | (ends > BESIDE)
        others += [keys[number] for number in np.flatnonzero(~is_known).tolist()]
        known = np.flatnonzero(is_known)
        begins = starts[known] + ends[known] * UNIT_SIZE
        held_sizes = (last_ends - ends)[known].clip(min=0) * UNIT_SIZE
        held_ends = held_sizes.cumsum()
        held_begins = held_ends - held_sizes
        held = all_units[np.repeat(begins - held_begins, held_sizes) + np.arange(held_sizes.sum())]
        starts_at, indexes, data_sizes = looked_at[known].T
        queue_ends = starts_at + indexes + ends[known]
        none = np.full(len(known), NOT_MET)
        return _LookedAt(
            [keys[number] for number in known.tolist()],
            np.column_stack((starts_at, queue_ends, data_sizes, held_begins)),
            np.column_stack((queue_ends, held_begins, held_ends, none, none)),
            held,
            others,
        )

    def _start_of(self, file: OnlyFile) -> int | None:
        """Return the byte offset at which a file starts, None if it is not one as we make them."""
        if file.size != self._file_size:
            return None
        name = file.name
        if name not in self._file_starts:
            start = parse_file_name(name)
            is_ours = (
                start is not None and start % self._file_size == 0 and name == file_name(start)
            )
            self._file_starts[name] = start if is_ours else None
        return self._file_starts[name]

    def _take_in(self, looks: list[_LookedAt]) -> None:
        keys = [key for look in looks for key in look.keys]
        places = [look.places for look in looks] or [np.empty((0, _PLACE_COLUMN_COUNT), np.int64)]
        found = [look.found for look in looks] or [np.empty((0, FOUND_COLUMN_COUNT), np.int64)]
        held_count = 0
        for look in looks:
            look.found[:, [HELD_POSITION, HELD_END]] += held_count
            look.places[:, _HELD] += held_count
            held_count += len(look.held)
        self._held = np.concatenate([look.held for look in looks] or [np.empty(0, np.uint8)])
        names = sorted({topic.encode("utf-8", "surrogateescape") for topic, _ in keys})
        self._topics = [name.decode("utf-8", "surrogateescape") for name in names]
        number_of = {topic: number for number, topic in enumerate(self._topics)}
        numbers = np.fromiter((number_of[topic] for topic, _ in keys), np.int64, len(keys))
        ids = np.fromiter((queue_id for _, queue_id in keys), np.int64, len(keys))
        order = np.lexsort((ids, numbers))
        self._ids = ids[order]
        self._topic_of = numbers[order]
        self._places = np.concatenate(places)[order]
        self._found = np.ascontiguousarray(np.concatenate(found)[order])
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._name_ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self._queue_ends = np.searchsorted(self._topic_of, np.arange(len(names)), "right")
        begins = [0, *self._queue_ends.tolist()]
        self._lines_of = {
            topic: (begins[number], begins[number + 1]) for topic, number in number_of.items()
        }

    # ---- what the log says

    def meet(self, groups: UnitGroups) -> list[int]:
        """Take in units of queues that hold the very same where the records claim to be; return the other groups."""
        left = np.empty(groups.count, np.int64)
        count = meet_units(
            groups.data, groups.rows, groups.first_row, groups.count, groups.start, groups.units,
            groups.queue_offsets, self._names, self._name_ends, self._queue_ends, self._ids,
            self._held, self._found, left,
        )  # fmt: skip
        assert count >= 0
        numbers: list[int] = left[:count].tolist()
        return numbers

    def leave_out(self, key: QueueKey) -> QueueRun | None:
        """Take a queue in by no more units, and count it no more; return what was met of it, None if nothing was."""
        line = self._line_of(key)
        if line is None:
            return None
        next_offset, position, _, first, last = self._found[line].tolist()
        self._found[line, HELD_POSITION] = LEFT_OUT
        begin = int(self._places[line, _END])
        if position == LEFT_OUT or next_offset == begin:
            return None
        return QueueRun(key, begin, next_offset, first, last)

    def leave_out_topic(self, topic: str) -> None:
        """Leave out all queues of a topic."""
        begin, end = self._lines_of.get(topic, (0, 0))
        self._found[begin:end, HELD_POSITION] = LEFT_OUT

    def unfinished(self) -> list[QueueKey]:
        """Return the queues that are left out, or hold more after what was met."""
        position, end = self._found[:, HELD_POSITION], self._found[:, HELD_END]
        return list(self._keys(np.flatnonzero((position == LEFT_OUT) | (position < end))))

    @property
    def _met_counts(self) -> Longs:
        counts: Longs = self._found[:, NEXT_OFFSET] - self._places[:, _END]
        return counts

    def met(self) -> Iterator[tuple[QueueKey, int, int]]:
        """Yield each queue of which units were met, and their queue offsets ``[begin, end)``."""
        lines = np.flatnonzero((self._met_counts > 0) & (self._found[:, HELD_POSITION] != LEFT_OUT))
        begins, ends = self._places[lines, _END].tolist(), self._found[lines, NEXT_OFFSET].tolist()
        yield from zip(self._keys(lines), begins, ends, strict=True)

    def _keys(self, lines: Longs) -> Iterator[QueueKey]:
        topics = map(self._topics.__getitem__, self._topic_of[lines].tolist())
        return zip(topics, self._ids[lines].tolist(), strict=True)

    # ---- what the queues are

    @property
    def unit_count(self) -> int:
        """How many units the queues hold that are not left out."""
        counts = self._found[:, NEXT_OFFSET] - self._places[:, _START]
        return int(counts[self._found[:, HELD_POSITION] != LEFT_OUT].sum())

    def end_of(self, key: QueueKey) -> FoundEnd | None:
        """Return where a queue ends by the limit, and what it holds after that; None if it has no place here."""
        line = self._line_of(key)
        if line is None:
            return None
        start, end, data_size, position = self._places[line].tolist()
        following = self._held[position : int(self._found[line, HELD_END])]
        kept = following.tobytes() if len(following) <= KEPT_BYTES_MAX else None
        return FoundEnd(self.limit_commit_offset, end, start * UNIT_SIZE, data_size, kept)

    def has_place(self, key: QueueKey) -> bool:
        """Whether a queue has its place here."""
        return self._line_of(key) is not None

    def place_of(self, key: QueueKey) -> tuple[int, int] | None:
        """Return where a queue's file starts, in bytes, and where it goes on; None if it is not known here."""
        line = self._line_of(key)
        if line is None or self._found[line, HELD_POSITION] == LEFT_OUT:
            return None
        return int(self._places[line, _START]) * UNIT_SIZE, int(self._found[line, NEXT_OFFSET])

    def starts(self, *topics: str) -> Iterator[tuple[QueueKey, int]]:
        """Yield each queue that has its place here, of all topics or some, and where its file starts, in bytes."""
        for topic in topics or list(self._lines_of):
            begin, end = self._lines_of.get(topic, (0, 0))
            lines = np.flatnonzero(self._found[begin:end, HELD_POSITION] != LEFT_OUT) + begin
            ids, starts = self._ids[lines].tolist(), self._places[lines, _START].tolist()
            for queue_id, start in zip(ids, starts, strict=True):
                yield (topic, queue_id), start * UNIT_SIZE

    def _line_of(self, key: QueueKey) -> int | None:
        topic, queue_id = key
        begin, end = self._lines_of.get(topic, (0, 0))
        line = begin + queue_id
        if not (queue_id >= 0 and line < end and self._ids[line] == queue_id):
            line = begin + int(np.searchsorted(self._ids[begin:end], queue_id))
        return line if line < end and self._ids[line] == queue_id else None

    def ends_at(self, end_commit_offset: int) -> bool:
        """Whether the queues end where a log that ends there has them end: what it says has been met, or is nothing."""
        return self.is_settled or self.limit_commit_offset == end_commit_offset

    def end_recovery(self) -> None:
        """Let go of what was held: the queues are what was met of them."""
        self._held = np.empty(0, np.uint8)

    def forget_topic(self, topic: str) -> None:
        """Forget the queues of a topic that was deleted."""
        self._lines_of.pop(topic, None)
