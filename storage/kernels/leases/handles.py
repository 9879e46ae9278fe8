"""Receipt handles: sealed for messages that are handed out, and opened."""

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
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
    u8,
)

_LETTERS: Final = np.frombuffer(ALPHABET, np.uint8)
_NOT_A_LETTER: Final = 0xFF

# of opened handles
HANDLE_OFFSET: Final = 0
HANDLE_KIND: Final = 1
HANDLE_QUEUE_ID: Final = 2
HANDLE_ATTEMPT: Final = 3
HANDLE_LEASED_AT: Final = 4
HANDLE_COLUMNS: Final = 5
FORGED_KIND: Final = -1  # of one that is not of this key


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
    """Read handles, HANDLE_SIZE letters each, to lines of ``opened``; one that is forged has FORGED_KIND and zeros.

    Returns how many there are, -1 if there is no room.
    """
    count = handles.size // HANDLE_SIZE
    if scratch.size < PACKED_SIZE or opened.shape[0] < count or opened.shape[1] < HANDLE_COLUMNS:
        return i64(-1)
    for i in range(count):
        for column in range(HANDLE_COLUMNS):
            opened[i, column] = 0
        opened[i, HANDLE_KIND] = FORGED_KIND
        if (
            not read_letters(handles, i * HANDLE_SIZE, scratch)
            or read_u8(scratch, 0) != VERSION
            or read_i64(scratch, MAC_POSITION)
            != siphash(scratch, i64(0), i64(SIGNED_SIZE), key_low, key_high)
        ):
            continue
        opened[i, HANDLE_OFFSET] = read_i64(scratch, QUEUE_OFFSET_POSITION)
        opened[i, HANDLE_KIND] = read_u8(scratch, KIND_POSITION)
        opened[i, HANDLE_QUEUE_ID] = read_i32(scratch, QUEUE_ID_POSITION)
        opened[i, HANDLE_ATTEMPT] = (read_u8(scratch, ATTEMPT_POSITION) << 8) | read_u8(
            scratch, ATTEMPT_POSITION + 1
        )
        opened[i, HANDLE_LEASED_AT] = (read_i64(scratch, LEASED_AT_POSITION) >> 16) & (
            (1 << 48) - 1
        )
    return i64(count)
