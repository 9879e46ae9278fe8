"""The layout of one record of the commit log, and its constants.

With B and S the encoded sizes of the two hosts (8 for IPv4, 20 for IPv6) and n the body's length::

    offset       size   type   field
    0            4      i32    total_size                   whole record, these 4 bytes included
    4            4      u32    magic                        version 1, version 2 or blank
    8            4      i32    body_crc                     CRC-32 of the stored body, masked to 31 bits
    12           4      i32    queue_id
    16           4      i32    flag                         the application's, opaque
    20           8      i64    queue_offset                 number of the record in its queue
    28           8      i64    commit_offset                its own absolute position in the log
    36           4      i32    sys_flag                     SYS_FLAG_* bits
    40           8      i64    born_timestamp_ms            the client's clock
    48           B      bytes  born_host                    see ``hosts``
    48+B         8      i64    store_timestamp_ms           the store's clock
    56+B         S      bytes  store_host
    56+B+S       4      i32    reconsume_times
    60+B+S       8      i64    prepared_transaction_offset  of a committed message: where its half lies
    68+B+S       4      i32    body_length
    72+B+S       n      bytes  body                         as received, maybe compressed
    72+B+S+n     1 / 2  int    topic_length                 i8 in version 1, i16 in version 2
                        bytes  topic                        UTF-8
                 2      i16    properties_length            0 to 32767
                        bytes  properties                   see ``properties``

A blank record ends a file: i32 bytes left from here, u32 magic. All integers are big-endian. There
is no padding.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

MAGIC_V1: Final = 0xDAA3_20A7
MAGIC_V2: Final = 0xDAA3_20AB
MAGIC_BLANK: Final = 0xCBD4_3194

SYS_FLAG_COMPRESSED: Final = 0x1
SYS_FLAG_MULTI_TAGS: Final = 0x2
SYS_FLAG_TRANSACTION_MASK: Final = 0xC
SYS_FLAG_PREPARED: Final = 0x4
SYS_FLAG_COMMITTED: Final = 0x8
SYS_FLAG_ROLLBACK: Final = 0xC
SYS_FLAG_BORN_HOST_V6: Final = 0x10
SYS_FLAG_STORE_HOST_V6: Final = 0x20
SYS_FLAG_LZ4: Final = 0x100
SYS_FLAG_ZSTD: Final = 0x200
SYS_FLAG_ZLIB: Final = 0x300

HEAD: Final = Struct(
    ">i"  # total_size
    "I"  # magic
    "i"  # body_crc
    "i"  # queue_id
    "i"  # flag
    "q"  # queue_offset
    "q"  # commit_offset
    "i"  # sys_flag
    "q"  # born_timestamp_ms
)
TOTAL_SIZE: Final = Struct(">i")  # the first field
OFFSETS: Final = Struct(">qq")  # queue_offset, commit_offset
STORE_TIMESTAMP: Final = Struct(">q")
UNTIL_BODY: Final = Struct(HEAD.format + "8sq8s" + "iqi")  # IPv4 hosts, and AFTER_HOSTS
AFTER_HOSTS: Final = Struct(
    ">i"  # reconsume_times
    "q"  # prepared_transaction_offset
    "i"  # body_length
)
TOPIC_LENGTH_V1: Final = Struct(">b")
TOPIC_LENGTH_V2: Final = Struct(">h")
PROPERTIES_LENGTH: Final = Struct(">h")
BLANK: Final = Struct(
    ">i"  # bytes left in the file from here, these 8 included
    "I"  # magic
)

MAGIC_POSITION: Final = 4
BODY_CRC_POSITION: Final = 8
QUEUE_ID_POSITION: Final = 12
FLAG_POSITION: Final = 16
QUEUE_OFFSET_POSITION: Final = 20
COMMIT_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
BORN_TIMESTAMP_POSITION: Final = 40
BORN_HOST_POSITION: Final = 48

SYS_FLAG_AND_BODY_LENGTH: Final = Struct(">i44xi")  # from SYS_FLAG_POSITION on, IPv4 hosts

BLANK_SIZE: Final = 8
RECORD_SIZE_MIN: Final = 91  # version 1, IPv4 hosts, body, topic and properties empty
TOPIC_SIZE_MAX_V1: Final = 127
