"""Events of rows, as the journal has them: noted, run by run, and applied again."""

from __future__ import annotations

from typing import Any

from storage.format.leases.journal import (
    COUNT,
    DONE,
    EVENT_GROUP,
    EVENT_KIND,
    EVENT_LEASED,
    EVENT_STATE,
    EVENT_TIME,
    FIRST,
    KIND_BITS,
    SET,
)
from storage.kernels.leases.columns import LEASED_AT, MESSAGE_GROUP, OFFSET, STATE, VISIBLE_AT
from storage.kernels.primitives.jit import i64, inner


@inner
def note_set(events: Any, count: int, rows: Any, index: int, queue_number: int) -> int:
    """Note how a row is now, in the run before if it goes on there; return how many events there are then."""
    kind = (queue_number << KIND_BITS) | SET
    group = rows[index, MESSAGE_GROUP] if rows.shape[1] > MESSAGE_GROUP else i64(0)
    last = count - 1
    if (
        count > 0
        and events[last, EVENT_KIND] == kind
        and events[last, FIRST] + events[last, COUNT] == rows[index, OFFSET]
        and events[last, EVENT_STATE] == rows[index, STATE]
        and events[last, EVENT_TIME] == rows[index, VISIBLE_AT]
        and events[last, EVENT_LEASED] == rows[index, LEASED_AT]
        and events[last, EVENT_GROUP] == group
    ):
        events[last, COUNT] += 1
        return i64(count)
    events[count, EVENT_KIND] = kind
    events[count, FIRST] = rows[index, OFFSET]
    events[count, COUNT] = 1
    events[count, EVENT_STATE] = rows[index, STATE]
    events[count, EVENT_TIME] = rows[index, VISIBLE_AT]
    events[count, EVENT_LEASED] = rows[index, LEASED_AT]
    events[count, EVENT_GROUP] = group
    return i64(count + 1)


@inner
def note_gone(events: Any, count: int, queue_offset: int, queue_number: int) -> int:
    """Note that a row is done; return how many events there are then."""
    kind = (queue_number << KIND_BITS) | DONE
    last = count - 1
    if (
        count > 0
        and events[last, EVENT_KIND] == kind
        and events[last, FIRST] + events[last, COUNT] == queue_offset
    ):
        events[last, COUNT] += 1
        return i64(count)
    events[count, EVENT_KIND] = kind
    events[count, FIRST] = queue_offset
    events[count, COUNT] = 1
    events[count, EVENT_STATE] = 0
    events[count, EVENT_TIME] = 0
    events[count, EVENT_LEASED] = 0
    events[count, EVENT_GROUP] = 0
    return i64(count + 1)
