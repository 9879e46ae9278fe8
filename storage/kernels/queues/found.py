"""All queues of a store as a start finds them: where they end, and whether they agree with the log.

Of each queue there are the units of its file, or of the file's end; queues are numbered by topic, as
bytes, and then by queue id.
"""

from __future__ import annotations

from typing import Any, Final

from storage.format.consume_entry import SIZE_IN_UNIT, TAG_CODE_IN_UNIT, UNIT_SIZE
from storage.kernels.columns import (
    COLUMN_COUNT,
    QUEUE_ID,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.primitives.big_endian import read_i32, read_i64, read_u8
from storage.kernels.primitives.crc import bytes_equal
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    ROWS,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
)
from storage.kernels.unit_order import last_visible

NEXT_OFFSET: Final = 0  # the queue offset after the units that were met in the log
HELD_POSITION: Final = 1  # of the unit there, among those that were held
HELD_END: Final = 2  # after the queue's last unit
FIRST_COMMIT_OFFSET: Final = 3  # of the first unit that was met
LAST_COMMIT_OFFSET: Final = 4
FOUND_COLUMN_COUNT: Final = 5
LEFT_OUT: Final = -1  # as a HELD_POSITION: the queue is not to be met here
NOT_MET: Final = -1  # as a commit offset


@inner
def is_empty(units: Any, index: int) -> bool:
    """Whether a unit is zeros."""
    position = index * UNIT_SIZE
    return (
        read_i64(units, position) == 0
        and read_i32(units, position + SIZE_IN_UNIT) == 0
        and read_i64(units, position + TAG_CODE_IN_UNIT) == 0
    )


@kernel(int64(BYTES, INT64S, int64, WRITABLE_INT64S, WRITABLE_INT64S))
def find_ends(
    units: Any, starts: Any, visible_commit_offset: int, ends: Any, last_ends: Any
) -> int:
    """Find where queues end whose units stand one after the other, those of queue i from ``starts[i]`` on, in bytes.

    ``ends[i]`` becomes the number of the queue's units up to the last one that is visible and in order, 0 if none is,
    as for :func:`visible_end`, or if ``visible_commit_offset`` is 0: before the first record there is none.
    ``last_ends[i]`` becomes the number of its units up to the last one that is not zeros. Returns the number of queues,
    -1 if an array does not fit.
    """
    count = starts.size - 1
    if count < 0 or ends.size < count or last_ends.size < count:
        return i64(-1)
    for i in range(count):
        begin, end = starts[i], starts[i + 1]
        if begin < 0 or end < begin or end > units.size or (end - begin) % UNIT_SIZE:
            return i64(-1)
        last = i64((end - begin) // UNIT_SIZE)
        first_unit = begin // UNIT_SIZE
        if begin % UNIT_SIZE:
            return i64(-1)
        ends[i] = 0
        if visible_commit_offset > 0:
            ends[i] = last_visible(units[begin:end], i64(0), last, visible_commit_offset)
        while last > 0 and is_empty(units, first_unit + last - 1):
            last -= 1
        last_ends[i] = last
    return i64(count)


@inner
def compare_names(
    left: Any, left_position: int, left_size: int, right: Any, right_position: int, right_size: int
) -> int:
    """Below 0, 0 or above 0: the order of two names by their bytes."""
    for i in range(min(left_size, right_size)):
        difference = read_u8(left, left_position + i) - read_u8(right, right_position + i)
        if difference != 0:
            return i64(difference)
    return i64(left_size - right_size)


@inner
def find_topic(data: Any, position: int, length: int, names: Any, name_ends: Any) -> int:
    """Number of the topic with that name, -1 if none has it; ``names`` are in order."""
    low, high = i64(0), i64(name_ends.size)
    while low < high:
        middle = (low + high) // 2
        begin = name_ends[middle - 1] if middle > 0 else i64(0)
        order = compare_names(names, begin, name_ends[middle] - begin, data, position, length)
        if order == 0:
            return middle
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return i64(-1)


@inner
def find_id(queue_ids: Any, begin: int, end: int, queue_id: int) -> int:
    """Number of the queue with that id in ``[begin, end)``, whose ids go up; -1 if none has it."""
    if 0 <= queue_id < end - begin and queue_ids[begin + queue_id] == queue_id:
        return i64(begin + queue_id)  # none is missing, as usual
    low, high = i64(begin), i64(end)
    while low < high:
        middle = (low + high) // 2
        if queue_ids[middle] < queue_id:
            low = middle + 1
        else:
            high = middle
    return low if low < end and queue_ids[low] == queue_id else i64(-1)


@inner
def is_consecutive(numbers: Any, begin: int, end: int) -> bool:
    """Whether the numbers go up by one."""
    i = begin + 1
    while i < end and numbers[i] == numbers[i - 1] + 1:
        i += 1
    return i >= end


@kernel(
    int64(
        BYTES, ROWS, INT64S, int64, INT64S, BYTES, INT64S,
        BYTES, INT64S, INT64S, INT64S, BYTES, WRITABLE_ROWS, WRITABLE_INT64S,
    )
)  # fmt: skip
def meet_units(
    data: Any, rows: Any, first_row: Any, group_count: int, group_start: Any, units: Any, queue_offsets: Any,
    names: Any, name_ends: Any, queue_ends: Any, queue_ids: Any, held: Any, found: Any, left: Any,
) -> int:  # fmt: skip
    """Take in units of records, in groups, whose queues hold the very same at the queue offsets which the records claim.

    The groups are those of :func:`build_units` and :func:`unit_queue_offsets`. ``names`` are the topics', one after
    the other in order, up to ``name_ends``; topic t's queues are those up to ``queue_ends[t]``, with ``queue_ids``. ``found`` has a
    line a queue, which is moved on over what is met of ``held``.

    The numbers of the groups that are not met, of which nothing is taken in, are put to ``left``; returns how many
    they are, -1 if an array does not fit.
    """
    if (
        rows.shape[1] != COLUMN_COUNT
        or found.shape[1] != FOUND_COLUMN_COUNT
        or first_row.size < group_count
        or group_start.size < group_count + 1
        or left.size < group_count
        or queue_ends.size != name_ends.size
        or queue_ids.size != found.shape[0]
    ):
        return i64(-1)
    left_count = i64(0)
    topic = i64(-1)
    topic_position = topic_length = i64(-1)
    for g in range(group_count):
        begin, end = group_start[g], group_start[g + 1]
        if begin == end:
            continue
        row = first_row[g]
        if (
            begin < 0
            or end < begin
            or end > queue_offsets.size
            or end * UNIT_SIZE > units.size
            or row < 0
            or row >= rows.shape[0]
        ):
            return i64(-1)
        position, length = rows[row, TOPIC_POSITION], rows[row, TOPIC_LENGTH]
        if length != topic_length or not bytes_equal(data, position, data, topic_position, length):
            topic_position, topic_length = position, length
            topic = find_topic(data, position, length, names, name_ends)
        queue = i64(-1)
        if topic >= 0:
            first = queue_ends[topic - 1] if topic > 0 else i64(0)
            if first >= 0 and queue_ends[topic] <= queue_ids.size:
                queue = find_id(queue_ids, first, queue_ends[topic], rows[row, QUEUE_ID])
        size = (end - begin) * UNIT_SIZE
        if queue >= 0:
            at = found[queue, HELD_POSITION]
            if (
                at >= 0
                and size <= min(found[queue, HELD_END], held.size) - at
                and queue_offsets[begin] == found[queue, NEXT_OFFSET]
                and is_consecutive(queue_offsets, begin, end)
                and bytes_equal(units, begin * UNIT_SIZE, held, at, size)
            ):
                found[queue, NEXT_OFFSET] += end - begin
                found[queue, HELD_POSITION] = at + size
                if found[queue, FIRST_COMMIT_OFFSET] < 0:
                    found[queue, FIRST_COMMIT_OFFSET] = read_i64(units, begin * UNIT_SIZE)
                found[queue, LAST_COMMIT_OFFSET] = read_i64(units, (end - 1) * UNIT_SIZE)
                continue
        left[left_count] = g
        left_count += 1
    return left_count
