"""The row table: what a scan reports of a record, one int64 row each.

    column  name                        meaning
    0       POSITION                    of the record in the scanned array
    1       SIZE                        whole record, bytes
    2       QUEUE_ID
    3       QUEUE_OFFSET                the record's own field
    4       COMMIT_OFFSET               the record's own field (physicalOffset)
    5       SYS_FLAG
    6       STORE_TIMESTAMP             milliseconds
    7       STORE_TIMESTAMP_POSITION    in the scanned array; the store host follows 8 bytes later
    8       BODY_POSITION
    9       BODY_LENGTH                 bytes, as stored
    10      TOPIC_POSITION
    11      TOPIC_LENGTH                bytes
    12      PROPERTIES_POSITION
    13      PROPERTIES_LENGTH           bytes, the property CRC trailer included
    14      TAG_CODE                    Java hash of TAGS, sign-extended; 0 where there is none
    15      FEATURES                    HAS_* bits
    16      UNIQ_KEY_POSITION           of the value of UNIQ_KEY; 0 where there is none
    17      UNIQ_KEY_LENGTH             bytes
    18      KEYS_POSITION               of the value of KEYS; 0 where there is none
    19      KEYS_LENGTH                 bytes

A table is ``np.empty((capacity, COLUMN_COUNT), np.int64)``; slices along the first axis are tables.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.format.stops import Stop as Stop

ByteArray = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]  # n x COLUMN_COUNT

POSITION: Final = 0
SIZE: Final = 1
QUEUE_ID: Final = 2
QUEUE_OFFSET: Final = 3
COMMIT_OFFSET: Final = 4
SYS_FLAG: Final = 5
STORE_TIMESTAMP: Final = 6
STORE_TIMESTAMP_POSITION: Final = 7
BODY_POSITION: Final = 8
BODY_LENGTH: Final = 9
TOPIC_POSITION: Final = 10
TOPIC_LENGTH: Final = 11
PROPERTIES_POSITION: Final = 12
PROPERTIES_LENGTH: Final = 13
TAG_CODE: Final = 14
FEATURES: Final = 15
UNIQ_KEY_POSITION: Final = 16
UNIQ_KEY_LENGTH: Final = 17
KEYS_POSITION: Final = 18
KEYS_LENGTH: Final = 19
COLUMN_COUNT: Final = 20

HAS_TAGS: Final = 1
HAS_KEYS: Final = 2
HAS_UNIQ_KEY: Final = 4
HAS_PROPERTY_CRC: Final = 8  # the properties end with a property CRC trailer
HAS_MULTI_DISPATCH: Final = 16  # INNER_MULTI_DISPATCH: the record is in light queues, too
HAS_DELAY: Final = 32
HAS_TIMER: Final = 64  # a property that asks for a time of delivery

CHECK_BODY_CRC: Final = 1
CHECK_PROPERTY_CRC: Final = 2  # of records that have the trailer; none may end in a zero byte
CHECK_COMMIT_OFFSET: Final = 4  # the record's own commit offset is where it stands
CHECK_ALL: Final = CHECK_BODY_CRC | CHECK_PROPERTY_CRC | CHECK_COMMIT_OFFSET


def stop_text(stop: int) -> str:
    """Return the words for why a scan stopped."""
    return next(member.text for member in Stop if member == stop)


STOP_END: Final = 0
STOP_ROWS_FULL: Final = 1
STOP_BLANK: Final = 2
STOP_ZERO: Final = 3
STOP_MAGIC: Final = 4
STOP_SIZE: Final = 5
STOP_LENGTHS: Final = 6
STOP_BODY_CRC: Final = 7
STOP_PROPERTY_CRC: Final = 8
STOP_COMMIT_OFFSET: Final = 9
STOP_TOPIC: Final = 10
STOP_TRUNCATED: Final = 11
STOP_VERSION: Final = 12
STOP_QUEUE: Final = 13
STOP_SYS_FLAG: Final = 14
STOP_DELAY: Final = 15
STOP_RESERVED_PROPERTY: Final = 16
STOP_PROPERTIES: Final = 17
STOP_TAG: Final = 18
STOP_HOST: Final = 19


def new_rows(capacity: int) -> npt.NDArray[np.int64]:
    """An empty row table for up to ``capacity`` records."""
    return np.empty((capacity, COLUMN_COUNT), np.int64)


def fields_at(data: ByteArray, positions: npt.NDArray[np.int64], kind: str) -> npt.NDArray[Any]:
    """Return the numbers of a kind, such as ``">i8"``, at positions of an array; each must lie inside."""
    count = max(data.size - np.dtype(kind).itemsize + 1, 0)
    return np.ndarray((count,), kind, data, strides=(1,))[positions]
