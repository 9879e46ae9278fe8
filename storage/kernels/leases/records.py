"""What leases need to know of records that a pull has verified."""

from __future__ import annotations

from typing import Any, Final

from storage.format.properties import SHARDING_KEY
from storage.format.record_layout import (
    BORN_HOST_POSITION,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels.columns import PROPERTIES_LENGTH, PROPERTIES_POSITION, STOP_END
from storage.kernels.leases.siphash import siphash
from storage.kernels.primitives.big_endian import read_i32, read_i64
from storage.kernels.primitives.jit import BYTES, WRITABLE_ROWS, i64, int64, kernel
from storage.kernels.primitives.scratch import scratch_row
from storage.kernels.primitives.text import text_bytes
from storage.kernels.properties import property_value
from storage.kernels.scan import frame_record

BEGIN: Final = 0
END: Final = 1
RECORD_OFFSET: Final = 2
RECONSUME_TIMES: Final = 3
RECORD_GROUP: Final = 4
IS_CHOSEN: Final = 5
RECORD_COLUMNS: Final = 6
_NAME: Final = text_bytes(SHARDING_KEY)


@kernel(int64(BYTES, int64, WRITABLE_ROWS, int64))
def walk_records(data: Any, with_groups: int, records: Any, row: int) -> int:
    """Fill rows of ``records`` from ``row`` on with the records in ``data``, all of them chosen.

    BEGIN and END are positions in ``data``. A record without a message group has group 0, as has each one without
    ``with_groups``. Returns the number of the row after the last; -1 if there are more, or what is there is
    not a record.
    """
    position = i64(0)
    scratch = scratch_row()
    while position < data.size:
        if row >= records.shape[0] or data.size - position < RECORD_SIZE_MIN:
            return i64(-1)
        size = i64(read_i32(data, position))
        if size < RECORD_SIZE_MIN or size > data.size - position:
            return i64(-1)
        sys_flag = read_i32(data, position + SYS_FLAG_POSITION)
        born = 20 if sys_flag & SYS_FLAG_BORN_HOST_V6 else 8
        stored = 20 if sys_flag & SYS_FLAG_STORE_HOST_V6 else 8
        reconsume_position = position + BORN_HOST_POSITION + born + 8 + stored
        if reconsume_position + 4 > position + size:
            return i64(-1)
        records[row, BEGIN] = position
        records[row, END] = position + size
        records[row, RECORD_OFFSET] = read_i64(data, position + QUEUE_OFFSET_POSITION)
        records[row, RECONSUME_TIMES] = max(i64(read_i32(data, reconsume_position)), i64(0))
        group = i64(0)
        if with_groups:
            if frame_record(data, position, data.size, i64(0), scratch, i64(0)) != STOP_END:
                return i64(-1)
            at, length = property_value(
                data, scratch[0, PROPERTIES_POSITION], scratch[0, PROPERTIES_LENGTH], _NAME
            )
            if at >= 0:
                group = siphash(data, at, length, i64(0), i64(0)) | 1
        records[row, RECORD_GROUP] = group
        records[row, IS_CHOSEN] = 1
        position += size
        row += 1
    return i64(row)
