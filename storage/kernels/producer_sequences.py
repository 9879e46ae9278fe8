"""Which request of which producer records were stored by: written into records, found in the log.

``storage.format.producer_sequence`` has the property's bytes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from storage.format.producer_sequence import (
    END_AT,
    NUMBER_DIGITS,
    PLACE_AT,
    PLACE_MASK,
    PREFIX,
    PRODUCER_DIGITS,
    SEQUENCE_AT,
    SEQUENCE_PROPERTY_SIZE,
    SIZE_AT,
)
from storage.format.properties import PROPERTY_END
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.kernels.columns import (
    COLUMN_COUNT,
    COMMIT_OFFSET,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    SIZE,
)
from storage.kernels.primitives.big_endian import read_u8, write_i16, write_i32
from storage.kernels.primitives.crc import copy_bytes
from storage.kernels.primitives.jit import (
    BYTES,
    ROWS,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
    u8,
    uintp,
)
from storage.kernels.primitives.text import text_bytes, write_hex
from storage.kernels.properties import matches

PRODUCER_ID: Final = 0  # columns of what is found
SEQUENCE: Final = 1
BEGIN_OFFSET: Final = 2
BATCH_SIZE: Final = 3
FOUND_COLUMN_COUNT: Final = 4

_PREFIX: Final = text_bytes(PREFIX)
_NO_DIGIT: Final = 255
_HEX_VALUE: Final = np.full(256, _NO_DIGIT, np.uint8)
_HEX_VALUE[np.frombuffer(b"0123456789ABCDEF", np.uint8)] = np.arange(16, dtype=np.uint8)


@inner
def write_sequence(
    dst: Any, at: int, producer_id: int, sequence: int, size: int, commit_offset: int
) -> int:
    """Write the property; return the position after it."""
    copy_bytes(dst, at, _PREFIX, i64(0), i64(_PREFIX.size))
    write_hex(dst, at + _PREFIX.size, producer_id, i64(PRODUCER_DIGITS))
    write_hex(dst, at + SEQUENCE_AT, sequence, i64(NUMBER_DIGITS))
    write_hex(dst, at + SIZE_AT, size, i64(NUMBER_DIGITS))
    write_hex(dst, at + PLACE_AT, commit_offset, i64(NUMBER_DIGITS))
    dst[uintp(at + END_AT)] = u8(PROPERTY_END)
    return i64(at + SEQUENCE_PROPERTY_SIZE)


@inner
def insert_sequence(
    dst: Any, dst_position: int, src: Any, rows: Any, row: int, growth: int, size: int,
    commit_offset: int, producer_id: int, sequence: int, batch_size: int,
) -> int:  # fmt: skip
    """Put the property before those of a record that was copied with ``size`` bytes; return its new size.

    ``growth`` is what its properties had grown by for a trailer, which is written later.
    """
    length = rows[row, PROPERTIES_LENGTH]
    at = dst_position + size - growth - length
    after = at + SEQUENCE_PROPERTY_SIZE
    copy_bytes(dst, after, src, i64(rows[row, PROPERTIES_POSITION]), i64(length))
    if growth > PROPERTY_CRC_SIZE:
        dst[uintp(after + length)] = u8(PROPERTY_END)
    write_sequence(dst, i64(at), producer_id, sequence, batch_size, commit_offset)
    write_i16(dst, at - 2, length + growth + SEQUENCE_PROPERTY_SIZE)
    placed = size + SEQUENCE_PROPERTY_SIZE
    write_i32(dst, dst_position, placed)
    return i64(placed)


@inner
def read_hex(data: Any, at: int, digits: int) -> int:
    """The number in so many digits, a negative one of 64 bits; -1 if one of them is none."""
    value = i64(0)
    for i in range(digits):
        digit = i64(_HEX_VALUE[read_u8(data, at + i)])
        if digit == _NO_DIGIT:
            return i64(-1)
        value = value << 4 | digit
    return value


@kernel(int64(BYTES, ROWS, WRITABLE_ROWS))
def find_sequences(data: Any, rows: Any, found: Any) -> int:
    """Find the records that begin the records of a request; return how many there are.

    ``rows`` come from a scan of ``data``. A line of ``found`` has producer id, sequence, the record's commit
    offset, and how many bytes all of the request's records have. -1 if an argument does not fit.
    """
    if (
        rows.shape[1] != COLUMN_COUNT
        or found.shape[1] != FOUND_COLUMN_COUNT
        or found.shape[0] < rows.shape[0]
    ):
        return i64(-1)
    count = i64(0)
    for row in range(rows.shape[0]):
        at = i64(rows[row, PROPERTIES_POSITION])
        if (
            rows[row, PROPERTIES_LENGTH] < SEQUENCE_PROPERTY_SIZE
            or at < 0
            or at > data.size - SEQUENCE_PROPERTY_SIZE
            or not matches(data, at, _PREFIX)
            or read_u8(data, at + END_AT) != PROPERTY_END
        ):
            continue
        producer_id = read_hex(data, i64(at + _PREFIX.size), i64(PRODUCER_DIGITS))
        sequence = read_hex(data, i64(at + SEQUENCE_AT), i64(NUMBER_DIGITS))
        size = read_hex(data, i64(at + SIZE_AT), i64(NUMBER_DIGITS))
        place = read_hex(data, i64(at + PLACE_AT), i64(NUMBER_DIGITS))
        if (
            producer_id <= 0
            or sequence <= 0
            or size < rows[row, SIZE]
            or place != rows[row, COMMIT_OFFSET] & PLACE_MASK
        ):
            continue
        found[count, PRODUCER_ID] = producer_id
        found[count, SEQUENCE] = sequence
        found[count, BEGIN_OFFSET] = rows[row, COMMIT_OFFSET]
        found[count, BATCH_SIZE] = size
        count += 1
    return count
