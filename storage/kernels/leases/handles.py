"""Receipt handles: made for rows, opened, and what they ask for done to the rows they name."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from storage.format.leases.receipt_handle import (
    ALPHABET,
    ATTEMPT_MAX,
    ATTEMPT_POSITION,
    HANDLE_SIZE,
    KIND_POSITION,
    LEASED_AT_POSITION,
    MAC_POSITION,
    PACKED_SIZE,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    SIGNED_SIZE,
    VERSION,
)
from storage.kernels.leases.columns import (
    ACKNOWLEDGED,
    DEAD,
    EXPIRED,
    FORGED,
    GONE,
    GOOD,
    HANDLE_ATTEMPT,
    HANDLE_COLUMNS,
    HANDLE_KIND,
    HANDLE_LEASED_AT,
    HANDLE_OFFSET,
    HANDLE_PROBLEM,
    HANDLE_QUEUE_ID,
    LEASED,
    LEASED_AT,
    NEXT_OFFSET,
    OFFSET,
    OPEN,
    STATE,
    TAIL,
    VISIBLE_AT,
    WAITING,
)
from storage.kernels.leases.events import note_gone, note_set
from storage.kernels.leases.row import (
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
from storage.kernels.leases.siphash import siphash
from storage.kernels.primitives.big_endian import (
    read_i32,
    read_i64,
    read_u8,
    write_i16,
    write_i32,
    write_i64,
)
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
    u8,
)

_LETTERS: Final = np.frombuffer(ALPHABET, np.uint8)
_NOT_A_LETTER: Final = 0xFF


def _values() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    values = np.full(256, _NOT_A_LETTER, np.uint8)
    values[_LETTERS] = np.arange(len(ALPHABET), dtype=np.uint8)
    return values


_VALUES: Final = _values()


@inner
def write_letters(target: Any, position: int, source: Any) -> None:
    """Write the PACKED_SIZE bytes of ``source`` as letters."""
    for i in range(PACKED_SIZE // 3):
        word = (
            (read_u8(source, 3 * i) << 16)
            | (read_u8(source, 3 * i + 1) << 8)
            | read_u8(source, 3 * i + 2)
        )
        for j in range(4):
            target[position + 4 * i + j] = _LETTERS[(word >> (18 - 6 * j)) & 63]


@inner
def read_letters(source: Any, position: int, target: Any) -> bool:
    """Read letters to the PACKED_SIZE bytes of ``target``; False if one of them is none."""
    for i in range(PACKED_SIZE // 3):
        word = i64(0)
        for j in range(4):
            value = i64(_VALUES[source[position + 4 * i + j]])
            if value == _NOT_A_LETTER:
                return False
            word = (word << 6) | value
        target[3 * i] = u8((word >> 16) & 0xFF)
        target[3 * i + 1] = u8((word >> 8) & 0xFF)
        target[3 * i + 2] = u8(word & 0xFF)
    return True


@kernel(
    int64(
        WRITABLE_BYTES, int64, INT64S, INT64S, int64, int64, int64, int64, int64, WRITABLE_BYTES
    )
)  # fmt: skip
def seal_handles(
    handles: Any, position: int, queue_offsets: Any, attempts: Any, kind: int, queue_id: int,
    leased_at: int, key_low: int, key_high: int, scratch: Any,
) -> int:  # fmt: skip
    """Write handles of one queue to ``handles``; ``scratch`` has PACKED_SIZE bytes.

    Returns the position after the last one, -1 if there is no room.
    """
    count = queue_offsets.size
    if (
        attempts.size < count
        or scratch.size < PACKED_SIZE
        or position < 0
        or position + count * HANDLE_SIZE > handles.size
    ):
        return i64(-1)
    scratch[0] = u8(VERSION)
    scratch[KIND_POSITION] = u8(kind)
    write_i32(scratch, QUEUE_ID_POSITION, queue_id)
    for i in range(count):
        write_i16(scratch, ATTEMPT_POSITION, min(attempts[i], ATTEMPT_MAX))
        write_i64(scratch, QUEUE_OFFSET_POSITION, queue_offsets[i])
        write_i64(scratch, LEASED_AT_POSITION, leased_at << 16)
        write_i64(
            scratch, MAC_POSITION, siphash(scratch, i64(0), i64(SIGNED_SIZE), key_low, key_high)
        )
        write_letters(handles, position, scratch)
        position += HANDLE_SIZE
    return i64(position)


@kernel(int64(BYTES, int64, int64, WRITABLE_BYTES, WRITABLE_ROWS))
def open_handles(handles: Any, key_low: int, key_high: int, scratch: Any, opened: Any) -> int:
    """Read handles, HANDLE_SIZE letters each, to lines of ``opened``: OPEN, or FORGED.

    Returns how many are FORGED, -1 if there is no room.
    """
    count = handles.size // HANDLE_SIZE
    forged = i64(0)
    if scratch.size < PACKED_SIZE or opened.shape[0] < count or opened.shape[1] < HANDLE_COLUMNS:
        return i64(-1)
    for i in range(count):
        opened[i, HANDLE_PROBLEM] = FORGED
        opened[i, HANDLE_KIND] = -1
        opened[i, HANDLE_QUEUE_ID] = -1
        if (
            not read_letters(handles, i * HANDLE_SIZE, scratch)
            or read_u8(scratch, 0) != VERSION
            or read_i64(scratch, MAC_POSITION)
            != siphash(scratch, i64(0), i64(SIGNED_SIZE), key_low, key_high)
        ):
            forged += 1
            continue
        opened[i, HANDLE_PROBLEM] = OPEN
        opened[i, HANDLE_KIND] = read_u8(scratch, KIND_POSITION)
        opened[i, HANDLE_QUEUE_ID] = read_i32(scratch, QUEUE_ID_POSITION)
        opened[i, HANDLE_OFFSET] = read_i64(scratch, QUEUE_OFFSET_POSITION)
        opened[i, HANDLE_ATTEMPT] = (read_u8(scratch, ATTEMPT_POSITION) << 8) | read_u8(
            scratch, ATTEMPT_POSITION + 1
        )
        opened[i, HANDLE_LEASED_AT] = (read_i64(scratch, LEASED_AT_POSITION) >> 16) & (
            (1 << 48) - 1
        )
    return forged


@inner
def problem_of(
    rows: Any, bounds: Any, opened: Any, line: int, index: int, now_ms: int, until: Any,
    renewed_max_ms: int,
) -> int:  # fmt: skip
    """What is wrong with an opened handle whose row is at ``index``, which is -1 if there is none."""
    if index < 0 or state_of(rows[index, STATE]) == GONE:
        if opened[line, HANDLE_OFFSET] < bounds[NEXT_OFFSET]:
            return i64(ACKNOWLEDGED)
        return i64(EXPIRED)
    value = rows[index, STATE]
    if (
        (state_of(value) != LEASED and state_of(value) != WAITING)
        or min(attempts_of(value), ATTEMPT_MAX) != opened[line, HANDLE_ATTEMPT]
        or rows[index, LEASED_AT] != opened[line, HANDLE_LEASED_AT]
        or lease_end(rows, index, until, renewed_max_ms) <= now_ms
    ):
        return i64(EXPIRED)
    return i64(GOOD)


@kernel(
    int64(
        WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_ROWS, int64, int64, int64,
        INT64S, int64, int64, int64, INT64S, int64, WRITABLE_ROWS, int64,
    )
)  # fmt: skip
def settle_handles(
    rows: Any, minima: Any, bounds: Any, opened: Any, kind: int, queue_id: int, now_ms: int,
    until: Any, renewed_max_ms: int, state: int, visible_at: int, backoff: Any,
    queue_number: int, events: Any, event_count: int,
) -> int:  # fmt: skip
    """Set the state of the rows that the open handles of one queue name, and what was wrong with each handle.

    GONE: acknowledged. LEASED: its time is ``visible_at``, nobody renews it; with an owner that did, it is
    WAITING. WAITING: given back, its time is after the group's ``backoff`` (ms after 1, 2, ... attempts), or
    ``visible_at`` where that is empty. DEAD: its time is ``visible_at``, to be made a dead letter of, which is
    no event. Returns how many events there are then, -1 if there is no room.
    """
    count = opened.shape[0]
    if event_count + count > events.shape[0] or bounds[TAIL] > rows.shape[0]:
        return i64(-1)
    noted = i64(event_count)
    for line in range(count):
        if (
            opened[line, HANDLE_PROBLEM] != OPEN
            or opened[line, HANDLE_KIND] != kind
            or opened[line, HANDLE_QUEUE_ID] != queue_id
        ):
            continue
        index = index_of(rows, bounds, opened[line, HANDLE_OFFSET])
        problem = problem_of(rows, bounds, opened, line, index, now_ms, until, renewed_max_ms)
        opened[line, HANDLE_PROBLEM] = problem
        if problem != GOOD:
            continue
        if state == GONE:
            noted = note_gone(events, noted, rows[index, OFFSET], queue_number)
            drop_row(rows, minima, bounds, index, now_ms)
            continue
        value = rows[index, STATE]
        attempts = attempts_of(value)
        changed = i64(state)
        if state == LEASED and owner_of(value) >= 0:
            changed = i64(WAITING)
        time_ms = i64(visible_at)
        if state == WAITING and backoff.size > 0:
            time_ms = now_ms + backoff[min(max(attempts, 1), backoff.size) - 1]
        rows[index, STATE] = packed(i64(-1), changed, attempts)
        rows[index, VISIBLE_AT] = time_ms
        note_time(minima, bounds, index, time_ms)
        if state != DEAD:
            noted = note_set(events, noted, rows, index, queue_number)
    skip_gone(rows, bounds)
    return noted
