"""Rows of leases: added, found when they are due, changed, moved together; ``columns`` says what they are."""

from __future__ import annotations

from typing import Any

from storage.kernels.leases.columns import (
    BLOCK_BITS,
    BLOCKED,
    BLOCKED_COUNT,
    DEAD,
    DUE_INDEX,
    DUE_IS_DEAD,
    GONE,
    HEAD,
    IS_CHOSEN,
    LEASED,
    LEASED_AT,
    LIVE,
    MESSAGE_GROUP,
    NEAREST_MS,
    NEVER,
    OFFSET,
    RECONSUME_TIMES,
    RECORD_GROUP,
    RECORD_OFFSET,
    STATE,
    TAIL,
    VISIBLE_AT,
    WAITING,
)
from storage.kernels.leases.events import note_gone, note_set
from storage.kernels.leases.message_groups import has_live, link_all, link_row
from storage.kernels.leases.row import (
    append_row,
    attempts_of,
    drop_row,
    index_of,
    lease_end,
    note_time,
    owner_of,
    packed,
    skip_gone,
    state_of,
)
from storage.kernels.primitives.jit import (
    INT64S,
    ROWS,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    i64,
    int64,
    kernel,
)


@kernel(
    int64(
        WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_ROWS, int64,
        int64, int64, int64, int64, int64, WRITABLE_ROWS, int64,
    )
)  # fmt: skip
def add_rows(
    rows: Any, minima: Any, bounds: Any, records: Any, count: int,
    now_ms: int, visible_at: int, owner: int, attempts_max: int, queue_number: int,
    events: Any, event_count: int,
) -> int:  # fmt: skip
    """Make rows of ``count`` new records that are chosen, and note them as events from ``event_count`` on.

    Those that may be handed out now stay chosen; not those that have used up their attempts, which are due
    at once, and those of an orderly group that are blocked. Returns how many events there are then, -1 if
    there is no room.
    """
    tail = bounds[TAIL]
    if (
        count > records.shape[0]
        or tail + count > rows.shape[0]
        or (tail + count) >> BLOCK_BITS >= minima.size
        or event_count + count > events.shape[0]
    ):
        return i64(-1)
    is_orderly = rows.shape[1] > MESSAGE_GROUP
    noted = i64(event_count)
    for i in range(count):
        if records[i, IS_CHOSEN] == 0:
            continue
        attempts = records[i, RECONSUME_TIMES]
        group = records[i, RECORD_GROUP]
        if is_orderly and has_live(rows, group):
            index = append_row(
                rows, minima, bounds, records[i, RECORD_OFFSET], i64(NEVER), i64(0),
                packed(i64(-1), i64(BLOCKED), attempts), group,
            )  # fmt: skip
            records[i, IS_CHOSEN] = 0
        elif attempts >= attempts_max:
            index = append_row(
                rows, minima, bounds, records[i, RECORD_OFFSET], now_ms, i64(0),
                packed(i64(-1), i64(LEASED), attempts), group,
            )  # fmt: skip
            records[i, IS_CHOSEN] = 0
        else:
            records[i, RECONSUME_TIMES] = attempts + 1
            index = append_row(
                rows, minima, bounds, records[i, RECORD_OFFSET], visible_at, now_ms,
                packed(owner, i64(LEASED), attempts + 1), group,
            )  # fmt: skip
        if is_orderly:
            link_row(rows, index)
        noted = note_set(events, noted, rows, index, queue_number)
    return noted


@kernel(
    int64(
        WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, int64, INT64S, int64, int64, INT64S,
        WRITABLE_ROWS,
    )
)  # fmt: skip
def due_rows(
    rows: Any, minima: Any, bounds: Any, now_ms: int, until: Any, renewed_max_ms: int,
    attempts_max: int, backoff: Any, found: Any,
) -> int:  # fmt: skip
    """Find rows whose time has come, the oldest messages first, as many as ``found`` has room for.

    A lease that its owner has renewed goes on; one that was renewed for ``renewed_max_ms`` is given back by
    the group's ``backoff`` (ms after 1, 2, ... attempts). Rows that are found stay as they are. Returns
    their number.
    """
    count = i64(0)
    nearest = i64(NEVER)
    head = bounds[HEAD]
    tail = bounds[TAIL]
    if tail > rows.shape[0] or (tail >> BLOCK_BITS) >= minima.size:
        return i64(0)
    first_block = head >> BLOCK_BITS
    end_block = (tail + (1 << BLOCK_BITS) - 1) >> BLOCK_BITS
    for block in range(first_block, end_block):
        if minima[block] > now_ms:
            nearest = min(nearest, minima[block])
            continue
        if count == found.shape[0]:
            nearest = min(nearest, minima[block])
            break
        block_nearest = i64(NEVER)
        begin = max(head, block << BLOCK_BITS)
        for index in range(begin, min(tail, (block + 1) << BLOCK_BITS)):
            value = rows[index, STATE]
            state = state_of(value)
            if state in (GONE, BLOCKED):
                continue
            time_ms = rows[index, VISIBLE_AT]
            if time_ms <= now_ms and state == LEASED and owner_of(value) >= 0:
                time_ms = lease_end(rows, index, until, renewed_max_ms)
                if time_ms <= now_ms and time_ms >= rows[index, LEASED_AT] + renewed_max_ms:
                    attempts = attempts_of(value)
                    if backoff.size > 0:
                        time_ms = now_ms + backoff[min(max(attempts, 1), backoff.size) - 1]
                    state = i64(WAITING)
                    rows[index, STATE] = packed(i64(-1), state, attempts)
                rows[index, VISIBLE_AT] = time_ms
            if time_ms > now_ms:
                block_nearest = min(block_nearest, time_ms)
            elif count < found.shape[0]:
                found[count, DUE_INDEX] = index
                found[count, DUE_IS_DEAD] = i64(state == DEAD or attempts_of(value) >= attempts_max)
                count += 1
                block_nearest = min(block_nearest, time_ms)
            else:
                block_nearest = min(block_nearest, time_ms)
        minima[block] = block_nearest
        nearest = min(nearest, block_nearest)
    bounds[NEAREST_MS] = nearest
    return count


@kernel(
    int64(
        WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, INT64S, int64, int64, int64, int64,
        WRITABLE_ROWS, int64,
    )
)  # fmt: skip
def lease_again(
    rows: Any, minima: Any, bounds: Any, indexes: Any, now_ms: int, visible_at: int, owner: int,
    queue_number: int, events: Any, event_count: int,
) -> int:  # fmt: skip
    """Lease rows for one more attempt; return how many events there are then, -1 if there is no room."""
    if event_count + indexes.size > events.shape[0]:
        return i64(-1)
    noted = i64(event_count)
    for index in indexes:
        if index < bounds[HEAD] or index >= bounds[TAIL]:
            return i64(-1)
        attempts = attempts_of(rows[index, STATE]) + 1
        rows[index, STATE] = packed(owner, i64(LEASED), attempts)
        rows[index, VISIBLE_AT] = visible_at
        rows[index, LEASED_AT] = now_ms
        note_time(minima, bounds, index, visible_at)
        noted = note_set(events, noted, rows, index, queue_number)
    return noted


@kernel(
    int64(
        WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, INT64S, int64, int64, int64,
        WRITABLE_ROWS, int64,
    )
)  # fmt: skip
def change_rows(
    rows: Any, minima: Any, bounds: Any, indexes: Any, state: int, visible_at: int,
    queue_number: int, events: Any, event_count: int,
) -> int:  # fmt: skip
    """Set state and time of live rows, without an owner; return how many events there are then.

    GONE: the row is done, and the next one of its message group visible at ``visible_at``. DEAD is no
    event: after a crash the row is due again.
    """
    if event_count + indexes.size > events.shape[0]:
        return i64(-1)
    noted = i64(event_count)
    for index in indexes:
        if index < bounds[HEAD] or index >= bounds[TAIL]:
            return i64(-1)
        value = rows[index, STATE]
        if state_of(value) == GONE:
            continue
        if state == GONE:
            noted = note_gone(events, noted, rows[index, OFFSET], queue_number)
            drop_row(rows, minima, bounds, index, visible_at)
            continue
        rows[index, STATE] = packed(i64(-1), state, attempts_of(value))
        rows[index, VISIBLE_AT] = visible_at
        note_time(minima, bounds, index, visible_at)
        if state != DEAD:
            noted = note_set(events, noted, rows, index, queue_number)
    skip_gone(rows, bounds)
    return noted


@kernel(int64(ROWS, INT64S, INT64S, WRITABLE_INT64S))
def find_rows(rows: Any, bounds: Any, queue_offsets: Any, indexes: Any) -> int:
    """Set ``indexes`` to the live rows of queue offsets, -1 for one that has none; return how many have."""
    if indexes.size < queue_offsets.size or bounds[TAIL] > rows.shape[0]:
        return i64(-1)
    count = i64(0)
    for i in range(queue_offsets.size):
        index = index_of(rows, bounds, queue_offsets[i])
        if index >= 0 and state_of(rows[index, STATE]) == GONE:
            index = i64(-1)
        indexes[i] = index
        if index >= 0:
            count += 1
    return count


@kernel(int64(ROWS, INT64S, WRITABLE_ROWS))
def move_live(rows: Any, bounds: Any, target: Any) -> int:
    """Copy live rows to the beginning of ``target``, which may be ``rows``; return how many.

    Columns that ``rows`` does not have are 0.
    """
    count = i64(0)
    columns = min(rows.shape[1], target.shape[1])
    for index in range(bounds[HEAD], bounds[TAIL]):
        if state_of(rows[index, STATE]) != GONE:
            if count >= target.shape[0]:
                return i64(-1)
            for column in range(columns):
                target[count, column] = rows[index, column]
            for column in range(columns, target.shape[1]):
                target[count, column] = 0
            count += 1
    return count


@kernel(int64(WRITABLE_ROWS, INT64S))
def link_groups(rows: Any, bounds: Any) -> int:
    """Link the rows of each message group again, after rows were moved or the last ones taken away."""
    if bounds[TAIL] > rows.shape[0] or rows.shape[1] <= MESSAGE_GROUP:
        return i64(-1)
    link_all(rows, bounds)
    return i64(0)


@kernel(int64(WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S))
def settle_times(rows: Any, minima: Any, bounds: Any) -> int:
    """Work out again what is known of all rows from the rows themselves; return how many live ones there are."""
    if bounds[TAIL] > rows.shape[0] or (bounds[TAIL] >> BLOCK_BITS) >= minima.size:
        return i64(-1)
    for block in range(minima.size):
        minima[block] = NEVER
    bounds[NEAREST_MS] = NEVER
    live = i64(0)
    blocked = i64(0)
    for index in range(bounds[HEAD], bounds[TAIL]):
        state = state_of(rows[index, STATE])
        if state == GONE:
            continue
        live += 1
        if state == BLOCKED:
            blocked += 1
        else:
            note_time(minima, bounds, index, rows[index, VISIBLE_AT])
    bounds[LIVE] = live
    bounds[BLOCKED_COUNT] = blocked
    return live


@kernel(int64(ROWS, INT64S, int64, INT64S, int64))
def count_leased(rows: Any, bounds: Any, now_ms: int, until: Any, renewed_max_ms: int) -> int:
    """How many rows are under a lease now."""
    count = i64(0)
    for index in range(bounds[HEAD], min(bounds[TAIL], rows.shape[0])):
        value = rows[index, STATE]
        if state_of(value) == LEASED and rows[index, LEASED_AT] > 0:
            count += i64(lease_end(rows, index, until, renewed_max_ms) > now_ms)
    return count
