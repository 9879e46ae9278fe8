"""Files of delayed messages: ours of pending rows, and a broker's check, timer wheel and timer log.

A file of pending rows::

    offset  size   type  field
    0       4      u32   checksum      CRC-32 of the rest
    4       4      u32   row_count
    8       8      i64   base_ms
    16      8      i64   base_offset
    24      8 n    u64   rows          (due time - base_ms) << 32 | (queue offset - base_offset), ascending

A broker's check, 4,096 bytes, the rest zeros; it has no checksum::

    0       8      i64   read_ms       slots before it were delivered: a whole second
    8       8      i64   log_position  of its timer log
    16      8      i64   queue_offset  of the timer topic: what a broker reads next
    24      8      i64   master_offset the same, of its master; a master's own
    32      8      i64   state_version
    40      8      i64   timestamp_ms
    48      8      i64   counter       new, as the time before, with each read_ms

A broker's ``timerwheel`` has ``WHEEL_SLOTS`` slots of 32 bytes, a second's at its number modulo the slots::

    0       8      i64   second        Unix time, of which the slot is
    8       8      i64   first         position of its first unit in the timer log, -1 without one
    16      8      i64   last          of its last unit
    24      4      i32   count
    28      4      i32   magic         0

A broker's ``timerlog/`` has files of ``TIMER_LOG_FILE_SIZE`` bytes with units of 52, each ended by
``(i32 bytes left, i64 0, i32 0xCBD43194)``::

    0       4      i32   size          52
    4       8      i64   previous      position of the unit before in the slot, -1 without one
    12      4      i32   magic         1, with 2 for one that is to be rolled on, with 4 for a recall
    16      8      i64   write_ms
    24      4      i32   delay_ms      from write_ms to the second of the slot
    28      8      i64   commit_offset of the record
    36      4      i32   record_size
    40      4      i32   topic_hash    for a broker's metrics
    44      8      i64   reserved      0

Integers are big-endian.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SECOND_MS: Final = 1_000  # in which a broker's timers count
ROWS_HEAD: Final = Struct(">IIqq")
CHECK: Final = Struct(">qqqqqqq")
CHECK_FILE_SIZE: Final = 4096
WHEEL_SLOTS: Final = 2 * 7 * 86_400
TIMER_LOG_FILE_SIZE: Final = 100 << 20
TIMER_LOG_END: Final = Struct(">iqI")
TIMER_LOG_END_MAGIC: Final = 0xCBD4_3194
MAGIC_TIMER: Final = 1
MAGIC_ROLLED: Final = 2
MAGIC_RECALL: Final = 4
ROW_SIZE: Final = 8


Milliseconds = TypeVar("Milliseconds", "int", "npt.NDArray[np.int64]")


def out_ms(deliver_ms: Milliseconds) -> Milliseconds:
    """Return the last whole second before a time, in milliseconds: what a broker's timer knows of it."""
    return (deliver_ms - 1) // SECOND_MS * SECOND_MS


class TimerCheck(NamedTuple):
    """What a broker's check holds."""

    read_ms: int
    log_position: int
    queue_offset: int
    master_offset: int
    state_version: int
    timestamp_ms: int
    counter: int


class TimerRows(NamedTuple):
    """What a file of pending rows holds; ``rows`` are big-endian, as they are in the file."""

    base_ms: int
    base_offset: int
    rows: memoryview


def encode_rows(base_ms: int, base_offset: int, rows: bytes) -> bytes:
    """Encode a file of pending rows."""
    head = ROWS_HEAD.pack(0, len(rows) // ROW_SIZE, base_ms, base_offset)[4:]
    return crc32(rows, crc32(head)).to_bytes(4, "big") + head + rows


def decode_rows(data: bytes) -> TimerRows:
    """Decode a file of pending rows. Raises ValueError if it is not whole."""
    if len(data) < ROWS_HEAD.size:
        raise ValueError("it is too short")
    checksum, count, base_ms, base_offset = ROWS_HEAD.unpack_from(data)
    view = memoryview(data)
    if len(data) != ROWS_HEAD.size + ROW_SIZE * count or checksum != crc32(view[4:]):
        raise ValueError("its checksum does not match")
    return TimerRows(base_ms, base_offset, view[ROWS_HEAD.size :])


def encode_check(
    read_ms: int, queue_offset: int, *, timestamp_ms: int, counter: int, log_position: int = 0
) -> bytes:
    """Encode a broker's check; ``log_position`` is the end of its timer log, 0 without one."""
    fields = TimerCheck(read_ms, log_position, queue_offset, queue_offset, 0, timestamp_ms, counter)
    return CHECK.pack(*fields).ljust(CHECK_FILE_SIZE, b"\0")


def decode_check(data: bytes) -> TimerCheck:
    """Decode a broker's check. Raises ValueError if no broker writes it so."""
    if len(data) < CHECK.size:
        raise ValueError(f"{len(data)} bytes; {CHECK.size} are needed")
    check = TimerCheck(*CHECK.unpack_from(data))
    if any(data[CHECK.size :]):
        raise ValueError(f"there is something after its {CHECK.size} bytes")
    if check.read_ms <= 0 or check.read_ms % SECOND_MS:
        raise ValueError(f"its time is {check.read_ms} ms, which is no second of the clock")
    if not 0 <= check.queue_offset <= check.master_offset:
        offsets = check.queue_offset, check.master_offset
        raise ValueError(f"its queue offsets, {offsets}, do not fit each other")
    return check
