"""Receipt handles, packed: sealed for messages that are handed out, and opened."""

from __future__ import annotations

from typing import Any, Final

from storage.format.receipt_handle import (
    ATTEMPT_MAX,
    ATTEMPT_POSITION,
    KIND_POSITION,
    LEASED_AT_POSITION,
    MAC_POSITION,
    PACKED_SIZE,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    SIGNED_SIZE,
    VERSION,
)
from storage.kernels.leases.siphash import siphash
from storage.kernels.primitives.big_endian import (
    read_i16,
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
    WRITABLE_ROWS,
    i64,
    int64,
    kernel,
    u8,
)

# of opened handles
HANDLE_OFFSET: Final = 0
HANDLE_KIND: Final = 1
HANDLE_QUEUE_ID: Final = 2
HANDLE_ATTEMPT: Final = 3
HANDLE_LEASED_AT: Final = 4
HANDLE_COLUMNS: Final = 5
FORGED_KIND: Final = -1  # of one that is not of this key


@kernel(int64(WRITABLE_BYTES, int64, INT64S, INT64S, int64, int64, int64, int64, int64))
def seal_handles(
    packed: Any, position: int, queue_offsets: Any, attempts: Any, kind: int, queue_id: int,
    leased_at: int, key_low: int, key_high: int,
) -> int:  # fmt: skip
    """Write handles of one queue from a position on; return the position after the last, -1 if there is no room."""
    count = queue_offsets.size
    if attempts.size < count or position < 0 or position + count * PACKED_SIZE > packed.size:
        return i64(-1)
    for i in range(count):
        packed[position] = u8(VERSION)
        packed[position + KIND_POSITION] = u8(kind)
        write_i16(packed, position + ATTEMPT_POSITION, min(attempts[i], ATTEMPT_MAX))
        write_i32(packed, position + QUEUE_ID_POSITION, queue_id)
        write_i64(packed, position + QUEUE_OFFSET_POSITION, queue_offsets[i])
        write_i64(packed, position + LEASED_AT_POSITION, leased_at << 16)
        mac = siphash(packed, position, i64(SIGNED_SIZE), key_low, key_high)
        write_i64(packed, position + MAC_POSITION, mac)
        position += PACKED_SIZE
    return i64(position)


@kernel(int64(BYTES, int64, int64, WRITABLE_ROWS))
def open_handles(packed: Any, key_low: int, key_high: int, opened: Any) -> int:
    """Read handles to lines of ``opened``; one that is forged has FORGED_KIND and zeros.

    Returns how many there are, -1 if there is no room.
    """
    count = packed.size // PACKED_SIZE
    if opened.shape[0] < count or opened.shape[1] < HANDLE_COLUMNS:
        return i64(-1)
    for i in range(count):
        position = i64(i * PACKED_SIZE)
        for column in range(HANDLE_COLUMNS):
            opened[i, column] = 0
        opened[i, HANDLE_KIND] = FORGED_KIND
        mac = siphash(packed, position, i64(SIGNED_SIZE), key_low, key_high)
        if read_u8(packed, position) != VERSION or read_i64(packed, position + MAC_POSITION) != mac:
            continue
        opened[i, HANDLE_OFFSET] = read_i64(packed, position + QUEUE_OFFSET_POSITION)
        opened[i, HANDLE_KIND] = read_u8(packed, position + KIND_POSITION)
        opened[i, HANDLE_QUEUE_ID] = read_i32(packed, position + QUEUE_ID_POSITION)
        opened[i, HANDLE_ATTEMPT] = read_i16(packed, position + ATTEMPT_POSITION) & ATTEMPT_MAX
        leased_at = read_i64(packed, position + LEASED_AT_POSITION) >> 16
        opened[i, HANDLE_LEASED_AT] = leased_at & ((1 << 48) - 1)
    return i64(count)
