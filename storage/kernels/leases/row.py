"""One row of leases: what its columns say, and changes of it; ``columns`` has the table."""

from __future__ import annotations

from typing import Any

from storage.kernels.leases.columns import (
    ATTEMPTS_MAX,
    BLOCK_BITS,
    BLOCKED,
    BLOCKED_COUNT,
    GONE,
    HEAD,
    LEASED,
    LEASED_AT,
    LIVE,
    MESSAGE_GROUP,
    NEAREST_MS,
    NEVER,
    OFFSET,
    OWNER_BITS,
    STATE,
    STATE_BITS,
    TAIL,
    VISIBLE_AT,
)
from storage.kernels.leases.message_groups import free_slots, unlink_row
from storage.kernels.primitives.jit import i64, inner


@inner
def packed(owner: int, state: int, attempts: int) -> int:
    """The STATE of a row; ``owner`` is -1 for none."""
    return ((owner + 1) << OWNER_BITS) | (state << STATE_BITS) | min(attempts, ATTEMPTS_MAX)


@inner
def state_of(value: int) -> int:
    """The state in a row's STATE."""
    return (value >> STATE_BITS) & 0xFF


@inner
def attempts_of(value: int) -> int:
    """How often the row's message was handed out."""
    return value & ATTEMPTS_MAX


@inner
def owner_of(value: int) -> int:
    """The number of the client that renews the row's lease, -1 for none."""
    return (value >> OWNER_BITS) - 1


@inner
def index_of(rows: Any, bounds: Any, queue_offset: int) -> int:
    """Index of the row with a queue offset, done or not; -1 if there is none."""
    low = i64(bounds[HEAD])
    high = i64(bounds[TAIL])
    while low < high:
        middle = (low + high) >> 1
        if rows[middle, OFFSET] < queue_offset:
            low = middle + 1
        else:
            high = middle
    if low < bounds[TAIL] and rows[low, OFFSET] == queue_offset:
        return low
    return i64(-1)


@inner
def note_time(minima: Any, bounds: Any, index: int, time_ms: int) -> None:
    """Take in that a row is due at a time."""
    block = index >> BLOCK_BITS
    if time_ms < minima[block]:
        minima[block] = time_ms
    if time_ms < bounds[NEAREST_MS]:
        bounds[NEAREST_MS] = time_ms


@inner
def lease_end(rows: Any, index: int, until: Any, renewed_max_ms: int) -> int:
    """When a row's lease ends, with what its owner has renewed; ``until`` has a time for each owner."""
    end = rows[index, VISIBLE_AT]
    value = rows[index, STATE]
    owner = owner_of(value)
    if state_of(value) == LEASED and owner >= 0 and owner < until.size:
        renewed = min(until[owner], rows[index, LEASED_AT] + renewed_max_ms)
        if renewed > end:
            end = renewed
    return i64(end)


@inner
def append_row(
    rows: Any, minima: Any, bounds: Any, queue_offset: int, visible_at: int, leased_at: int,
    value: int, message_group: int,
) -> int:  # fmt: skip
    """Add a row after all others; the caller has seen to the room. Returns its index."""
    index = bounds[TAIL]
    rows[index, OFFSET] = queue_offset
    rows[index, VISIBLE_AT] = visible_at
    rows[index, LEASED_AT] = leased_at
    rows[index, STATE] = value
    if rows.shape[1] > MESSAGE_GROUP:
        rows[index, MESSAGE_GROUP] = message_group
    if index & ((1 << BLOCK_BITS) - 1) == 0:
        minima[index >> BLOCK_BITS] = NEVER
    note_time(minima, bounds, index, visible_at)
    bounds[TAIL] = index + 1
    bounds[LIVE] += 1
    if state_of(value) == BLOCKED:
        bounds[BLOCKED_COUNT] += 1
    return i64(index)


@inner
def drop_row(rows: Any, minima: Any, bounds: Any, index: int, now_ms: int) -> None:
    """Make a live row GONE, and the next one of its message group visible if that is BLOCKED."""
    value = rows[index, STATE]
    rows[index, STATE] = GONE
    bounds[LIVE] -= 1
    if rows.shape[1] <= MESSAGE_GROUP:
        return
    following = unlink_row(rows, index)
    if state_of(value) == BLOCKED:
        bounds[BLOCKED_COUNT] -= 1
    elif following >= 0 and state_of(rows[following, STATE]) == BLOCKED:
        attempts = attempts_of(rows[following, STATE])
        rows[following, STATE] = packed(i64(-1), i64(LEASED), attempts)
        rows[following, VISIBLE_AT] = now_ms
        bounds[BLOCKED_COUNT] -= 1
        note_time(minima, bounds, following, now_ms)


@inner
def skip_gone(rows: Any, bounds: Any) -> None:
    """Move HEAD to the first live row."""
    head = bounds[HEAD]
    while head < bounds[TAIL] and state_of(rows[head, STATE]) == GONE:
        head += 1
    if head == bounds[TAIL]:
        if rows.shape[1] > MESSAGE_GROUP:
            free_slots(rows, head)
        head = i64(0)
        bounds[TAIL] = 0
        bounds[NEAREST_MS] = NEVER
    bounds[HEAD] = head
