"""Rows from events and events from rows: what a start reads, and what a new journal begins with."""

from __future__ import annotations

from typing import Any, Final

from storage.format.leases.journal import (
    CLEARED,
    COMMITTED_AT,
    COUNT,
    DONE,
    EVENT_GROUP,
    EVENT_KIND,
    EVENT_LEASED,
    EVENT_STATE,
    EVENT_TIME,
    FIRST,
    KIND_BITS,
    NEXT,
    SET,
)
from storage.kernels.leases.columns import (
    BLOCK_BITS,
    BLOCKED,
    COMMITTED,
    GONE,
    HEAD,
    LEASED,
    LEASED_AT,
    LIVE,
    MESSAGE_GROUP,
    NEVER,
    NEXT_OFFSET,
    OFFSET,
    STATE,
    TAIL,
    VISIBLE_AT,
)
from storage.kernels.leases.events import note_set
from storage.kernels.leases.message_groups import free_all_slots, has_live, link_row
from storage.kernels.leases.row import (
    append_row,
    attempts_of,
    index_of,
    packed,
    skip_gone,
    state_of,
)
from storage.kernels.primitives.jit import (
    ROWS,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
    results,
)

_KIND_MASK: Final = 0xFF
APPLIED: Final = 0
IMPOSSIBLE: Final = 1  # an event that cannot follow those before it
NO_ROOM: Final = 2


@inner
def set_run(rows: Any, minima: Any, bounds: Any, event: Any, number: int) -> bool:
    """Apply one SET; the caller has seen to the room. False if a row would have to come before others."""
    state = event[number, EVENT_STATE]
    first = event[number, FIRST]
    for queue_offset in range(first, first + event[number, COUNT]):
        tail = bounds[TAIL]
        if tail > bounds[HEAD] and queue_offset <= rows[tail - 1, OFFSET]:
            index = index_of(rows, bounds, queue_offset)
            if index < 0:
                return False
            if state_of(rows[index, STATE]) == GONE:
                bounds[LIVE] += 1
            rows[index, VISIBLE_AT] = event[number, EVENT_TIME]
            rows[index, LEASED_AT] = event[number, EVENT_LEASED]
            rows[index, STATE] = state
        else:
            append_row(
                rows, minima, bounds, queue_offset, event[number, EVENT_TIME],
                event[number, EVENT_LEASED], state, event[number, EVENT_GROUP],
            )  # fmt: skip
    return True


@inner
def end_run(rows: Any, bounds: Any, first: int, end: int) -> None:
    """Apply one DONE."""
    for queue_offset in range(first, end):
        index = index_of(rows, bounds, queue_offset)
        if index >= 0 and state_of(rows[index, STATE]) != GONE:
            rows[index, STATE] = GONE
            bounds[LIVE] -= 1
    skip_gone(rows, bounds)


@kernel(results(int64, 2)(WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, ROWS, int64, int64))
def apply_events(
    rows: Any, minima: Any, bounds: Any, events: Any, begin: int, end: int
) -> tuple[int, int]:
    """Apply events from ``begin`` on in order, up to ``end`` or the first that is of another queue.

    Returns the number of the first one that was not applied, and why: APPLIED where none is left, IMPOSSIBLE,
    or NO_ROOM. What is known of all rows together is to be worked out again after it.
    """
    number = i64(begin)
    if begin < 0 or end > events.shape[0] or bounds[TAIL] > rows.shape[0]:
        return number, i64(IMPOSSIBLE)
    if begin >= end:
        return number, i64(APPLIED)
    queue = events[number, EVENT_KIND] >> KIND_BITS
    while number < end:
        kind = events[number, EVENT_KIND] & _KIND_MASK
        if events[number, EVENT_KIND] >> KIND_BITS != queue:
            break
        first = events[number, FIRST]
        count = events[number, COUNT]
        if kind == SET:
            if count <= 0 or first < 0 or first > NEVER - count:
                return number, i64(IMPOSSIBLE)
            tail = bounds[TAIL]
            if count > rows.shape[0] - tail or (tail + count) >> BLOCK_BITS >= minima.size:
                return number, i64(NO_ROOM)
            if not set_run(rows, minima, bounds, events, number):
                return number, i64(IMPOSSIBLE)
        elif kind == DONE:
            if count <= 0 or first < 0 or first > NEVER - count:
                return number, i64(IMPOSSIBLE)
            if bounds[TAIL] > bounds[HEAD]:
                last = rows[bounds[TAIL] - 1, OFFSET] + 1
                end_run(
                    rows, bounds, max(first, rows[bounds[HEAD], OFFSET]), min(first + count, last)
                )
        elif kind == NEXT:
            bounds[NEXT_OFFSET] = first
            while bounds[TAIL] > bounds[HEAD] and rows[bounds[TAIL] - 1, OFFSET] >= first:
                bounds[TAIL] -= 1
                if state_of(rows[bounds[TAIL], STATE]) != GONE:
                    bounds[LIVE] -= 1
            skip_gone(rows, bounds)
        elif kind == CLEARED:
            bounds[HEAD] = 0
            bounds[TAIL] = 0
            bounds[LIVE] = 0
            bounds[NEXT_OFFSET] = first
        elif kind == COMMITTED_AT:
            bounds[COMMITTED] = first
        else:
            return number, i64(IMPOSSIBLE)
        number += 1
    return number, i64(APPLIED)


@kernel(int64(WRITABLE_ROWS, WRITABLE_INT64S, int64))
def settle_blocked(rows: Any, bounds: Any, now_ms: int) -> int:
    """Let the first row of each message group be free and all others be blocked; return how many are blocked.

    The table is that of an orderly group; its rows are linked then. A row that is blocked is due at once when
    it becomes the first.
    """
    blocked = i64(0)
    if bounds[TAIL] > rows.shape[0] or rows.shape[1] <= MESSAGE_GROUP:
        return blocked
    free_all_slots(rows)
    for index in range(bounds[HEAD], bounds[TAIL]):
        value = rows[index, STATE]
        state = state_of(value)
        if state == GONE:
            continue
        if state == BLOCKED:
            if has_live(rows, rows[index, MESSAGE_GROUP]):
                blocked += 1
            else:
                rows[index, STATE] = packed(i64(-1), i64(LEASED), attempts_of(value))
                rows[index, VISIBLE_AT] = now_ms
        link_row(rows, i64(index))
    return blocked


@kernel(results(int64, 2)(ROWS, int64, int64, int64, WRITABLE_ROWS))
def note_rows(rows: Any, begin: int, end: int, queue_number: int, events: Any) -> tuple[int, int]:
    """Note live rows of ``[begin, end)`` as events; return the index after the last noted, and how many events."""
    count = i64(0)
    index = i64(begin)
    if begin < 0 or end > rows.shape[0]:
        return index, count
    while index < end and count < events.shape[0]:
        if state_of(rows[index, STATE]) != GONE:
            count = note_set(events, count, rows, index, queue_number)
        index += 1
    return index, count
