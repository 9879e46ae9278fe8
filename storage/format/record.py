"""One record of the commit log.

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

A property block may end with a trailer that protects the whole record::

    offset  size  field
    0       8     name     ``__CRC32#``
    8       1     0x01
    9       10    digits   CRC-32 of all bytes before the trailer, masked to 31 bits,
                           least significant digit first
    19      1     0x02
    20

Damage can hit the trailer itself, its ten fixed bytes too. A block whose last 20 bytes are no
trailer ends in a damaged one if all ten digits are those of the CRC, or if at least eight of the
fixed bytes or eleven of all twenty are what they should be. The latter two do not count where the
20 bytes are a well-formed property of another name with a value of ten bytes: that is a sender's.

A blank record ends a file: i32 bytes left from here, u32 magic. All integers are big-endian. There
is no padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final
from zlib import crc32

from storage.format.compression import decompress
from storage.format.hosts import (
    ANY_HOST,
    IPV4_HOST_SIZE,
    IPV6_HOST_SIZE,
    decode_host,
    encode_host,
    host_size,
)
from storage.format.properties import (
    CRC32,
    PROPERTIES_SIZE_MAX,
    PROPERTY_END,
    decode_properties,
)

MAGIC_V1: Final = 0xDAA3_20A7
MAGIC_V2: Final = 0xDAA3_20AB
MAGIC_BLANK: Final = 0xCBD4_3194

SYS_FLAG_COMPRESSED: Final = 0x1
SYS_FLAG_MULTI_TAGS: Final = 0x2
SYS_FLAG_TRANSACTION_MASK: Final = 0xC
SYS_FLAG_PREPARED: Final = 0x4
SYS_FLAG_COMMIT: Final = 0x8
SYS_FLAG_ROLLBACK: Final = 0xC
SYS_FLAG_BORN_HOST_V6: Final = 0x10
SYS_FLAG_STORE_HOST_V6: Final = 0x20
SYS_FLAG_NEED_UNWRAP: Final = 0x40
SYS_FLAG_INNER_BATCH: Final = 0x80
SYS_FLAG_COMPRESSION_MASK: Final = 0x700
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
OFFSETS: Final = Struct(">qq")  # queue_offset, commit_offset
STORE_TIMESTAMP: Final = Struct(">q")
UNTIL_BODY: Final = Struct(HEAD.format + "8sq8s" + "iqi")  # IPv4 hosts, and AFTER_HOSTS
STORED: Final = Struct(">q8s")  # store_timestamp_ms, an IPv4 store_host
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
QUEUE_OFFSET_POSITION: Final = 20
COMMIT_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
BORN_TIMESTAMP_POSITION: Final = 40
BORN_HOST_POSITION: Final = 48

BLANK_SIZE: Final = 8
PROPERTY_CRC_SIZE: Final = 20
PROPERTY_CRC_DIGITS: Final = 10
RECORD_SIZE_MIN: Final = 91  # version 1, IPv4 hosts, body, topic and properties empty
RECORD_OVERHEAD_MAX: Final = 65_536  # a record may exceed its body by this much
TOPIC_SIZE_MAX_V1: Final = 127
TRAILER_FIXED_RIGHT_MIN: Final = 8
TRAILER_RIGHT_MIN: Final = 11
CRC_MASK: Final = 0x7FFF_FFFF

_ANY_HOST: Final = encode_host(ANY_HOST)
_TRAILER_HEAD: Final = CRC32.encode() + b"\x01"
_ZERO_TRAILER: Final = _TRAILER_HEAD + b"0" * PROPERTY_CRC_DIGITS + b"\x02"

Buffer = bytes | bytearray | memoryview


class Verdict(IntEnum):
    """What the bytes at a position are; the numbers are those of the scan kernel's stops."""

    GOOD = 0
    BLANK = 2
    ZERO = 3
    MAGIC = 4
    SIZE = 5
    LENGTHS = 6
    BODY_CRC = 7
    PROPERTY_CRC = 8
    COMMIT_OFFSET = 9
    TOPIC = 10
    TRUNCATED = 11
    PROPERTIES = 17


class MalformedRecord(ValueError):
    """The bytes do not frame a record; ``verdict`` says at what they fail."""

    def __init__(self, verdict: Verdict, position: int) -> None:
        super().__init__(f"no record at position {position}: {verdict.name.lower()}")
        self.verdict = verdict
        self.position = position


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A decoded record; hosts are ``address:port``, the body is as stored."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties_block: bytes

    @property
    def properties(self) -> dict[str, str]:
        """Decode the property block, the property CRC among them where there is one."""
        return decode_properties(self.properties_block)

    @property
    def transaction(self) -> int:
        """Transaction bits of the system flag: 0 or a SYS_FLAG_PREPARED, _COMMIT or _ROLLBACK."""
        return self.sys_flag & SYS_FLAG_TRANSACTION_MASK

    def decoded_body(self) -> bytes:
        """Return the body as the producer knew it; ValueError if it does not decompress."""
        return decompress(self.body, self.sys_flag)


def body_crc(body: Buffer) -> int:
    """Return the CRC-32 of a stored body as the record keeps it: 31 bits."""
    return crc32(body) & CRC_MASK


def topic_is_safe(topic: bytes) -> bool:
    """Whether a topic could be a broker's: visible ASCII, no slash, not ``.`` or ``..``."""
    return (
        bool(topic)
        and all(0x21 <= byte <= 0x7E and byte != 0x2F for byte in topic)
        and topic not in (b".", b"..")
    )


def _frame(buffer: Buffer, position: int) -> tuple[Verdict, int, int, int, int]:
    """Check framing alone: (verdict, size, body position, topic position, topic end)."""
    nothing = (0, 0, 0, 0)
    left = len(buffer) - position
    if position < 0 or left < BLANK_SIZE:
        return Verdict.TRUNCATED, *nothing
    size, magic = BLANK.unpack_from(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        if magic == MAGIC_BLANK:
            return Verdict.BLANK, *nothing
        return Verdict.ZERO if size == magic == 0 else Verdict.MAGIC, *nothing
    if size < RECORD_SIZE_MIN:
        return Verdict.SIZE, *nothing
    if size > left:
        return Verdict.TRUNCATED, *nothing
    end = position + size
    sys_flag = HEAD.unpack_from(buffer, position)[7]
    hosts = host_size(ipv6=bool(sys_flag & SYS_FLAG_BORN_HOST_V6)) + host_size(
        ipv6=bool(sys_flag & SYS_FLAG_STORE_HOST_V6)
    )
    topic_length = TOPIC_LENGTH_V2 if magic == MAGIC_V2 else TOPIC_LENGTH_V1
    smallest_rest = topic_length.size + PROPERTIES_LENGTH.size
    body_at = position + BORN_HOST_POSITION + hosts + STORE_TIMESTAMP.size + AFTER_HOSTS.size
    if body_at + smallest_rest > end:
        return Verdict.LENGTHS, *nothing
    body_length = AFTER_HOSTS.unpack_from(buffer, body_at - AFTER_HOSTS.size)[2]
    if body_length < 0 or body_at + body_length + smallest_rest > end:
        return Verdict.LENGTHS, *nothing
    (topic_size,) = topic_length.unpack_from(buffer, body_at + body_length)
    topic_at = body_at + body_length + topic_length.size
    if topic_size < 0 or topic_at + topic_size + PROPERTIES_LENGTH.size > end:
        return Verdict.LENGTHS, *nothing
    (properties_size,) = PROPERTIES_LENGTH.unpack_from(buffer, topic_at + topic_size)
    if properties_size < 0 or topic_at + topic_size + 2 + properties_size != end:
        return Verdict.LENGTHS, *nothing
    return Verdict.GOOD, size, body_at, topic_at, topic_at + topic_size


def decode_record(buffer: Buffer, position: int = 0) -> Record:
    """Decode the record at ``position``; its checksums are not looked at.

    Raises MalformedRecord for bytes that do not frame a record, or whose topic is not UTF-8.
    """
    verdict, size, body_at, topic_at, topic_end = _frame(buffer, position)
    if verdict is not Verdict.GOOD:
        raise MalformedRecord(verdict, position)
    head = HEAD.unpack_from(buffer, position)
    born_host_at = position + BORN_HOST_POSITION
    store_timestamp_at = born_host_at + host_size(ipv6=bool(head[7] & SYS_FLAG_BORN_HOST_V6))
    after_hosts_at = body_at - AFTER_HOSTS.size
    reconsume_times, prepared_transaction_offset, body_length = AFTER_HOSTS.unpack_from(
        buffer, after_hosts_at
    )
    try:
        topic = bytes(buffer[topic_at:topic_end]).decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(Verdict.TOPIC, position) from error
    return Record(
        total_size=size,
        magic=head[1],
        body_crc=head[2],
        queue_id=head[3],
        flag=head[4],
        queue_offset=head[5],
        commit_offset=head[6],
        sys_flag=head[7],
        born_timestamp_ms=head[8],
        born_host=decode_host(buffer[born_host_at:store_timestamp_at]),
        store_timestamp_ms=STORE_TIMESTAMP.unpack_from(buffer, store_timestamp_at)[0],
        store_host=decode_host(buffer[store_timestamp_at + 8 : after_hosts_at]),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=bytes(buffer[body_at : body_at + body_length]),
        topic=topic,
        properties_block=bytes(buffer[topic_end + 2 : position + size]),
    )


def check_record(buffer: Buffer, position: int = 0, commit_offset: int | None = None) -> Verdict:
    """Judge the bytes at ``position`` by every check that there is.

    Order: framing, body CRC, topic, a property block that ends in zeros, property CRC where the
    trailer is there, and, unless ``commit_offset`` is None, the record's own commit offset.
    """
    verdict, size, body_at, topic_at, topic_end = _frame(buffer, position)
    if verdict is not Verdict.GOOD:
        return verdict
    head = HEAD.unpack_from(buffer, position)
    body_length = AFTER_HOSTS.unpack_from(buffer, body_at - AFTER_HOSTS.size)[2]
    body = memoryview(buffer)[body_at : body_at + body_length]
    if body_length and body_crc(body) != head[2] & CRC_MASK:
        return Verdict.BODY_CRC
    if not topic_is_safe(bytes(buffer[topic_at:topic_end])):
        return Verdict.TOPIC
    end = position + size
    if topic_end + 2 < end and not buffer[end - 1]:
        return Verdict.PROPERTIES  # zeros where the tail was torn off, a property CRC maybe with it
    if end - topic_end - 2 >= PROPERTY_CRC_SIZE:
        tail = bytes(buffer[end - PROPERTY_CRC_SIZE : end])
        crc = crc32(memoryview(buffer)[position : end - PROPERTY_CRC_SIZE]) & CRC_MASK
        trailer = property_crc_trailer(crc)
        if tail != trailer and (has_property_crc(tail) or _was_trailer(tail, trailer)):
            return Verdict.PROPERTY_CRC
    if commit_offset is not None and head[6] != commit_offset:
        return Verdict.COMMIT_OFFSET
    return Verdict.GOOD


def property_crc_trailer(crc: int) -> bytes:
    """Return the 20 bytes of a trailer for a masked CRC."""
    digits = str(crc).encode()[::-1].ljust(PROPERTY_CRC_DIGITS, b"0")
    return _TRAILER_HEAD + digits + b"\x02"


def has_property_crc(properties_block: Buffer) -> bool:
    """Whether a property block ends with a trailer, whatever its digits are."""
    tail = bytes(properties_block[-PROPERTY_CRC_SIZE:])
    return len(tail) == PROPERTY_CRC_SIZE and tail.startswith(_TRAILER_HEAD) and tail[-1] == 2


def _was_trailer(tail: bytes, trailer: bytes) -> bool:
    """Whether 20 bytes that are no trailer were ``trailer`` before they were damaged."""
    right = [is_byte == was_byte for is_byte, was_byte in zip(tail, trailer, strict=True)]
    name_end = len(_TRAILER_HEAD) - 1
    digits_right = sum(right[name_end + 1 : -1])
    if digits_right == PROPERTY_CRC_DIGITS:
        return True
    text = tail[:name_end] + tail[name_end + 1 : -1]
    if right[name_end] and right[-1] and min(text) >= 0x20:
        return False
    return sum(right) - digits_right >= TRAILER_FIXED_RIGHT_MIN or sum(right) >= TRAILER_RIGHT_MIN


def set_property_crc(record: bytearray) -> None:
    """Write the digits of a record's reserved trailer, its last 20 bytes."""
    covered = len(record) - PROPERTY_CRC_SIZE
    record[covered:] = property_crc_trailer(crc32(memoryview(record)[:covered]) & CRC_MASK)


def complete_record(
    record: bytearray,
    *,
    queue_offset: int,
    commit_offset: int,
    store_timestamp_ms: int,
    store_host: bytes,
    property_crc: bool,
) -> None:
    """Fill in what ``encode_for_batch`` left zero; ``store_host`` is one of IPv4, encoded.

    ``property_crc`` says that the record's last 20 bytes are a reserved trailer: it is written last.
    """
    OFFSETS.pack_into(record, QUEUE_OFFSET_POSITION, queue_offset, commit_offset)
    position = BORN_HOST_POSITION + host_size(
        ipv6=bool(record[SYS_FLAG_POSITION + 3] & SYS_FLAG_BORN_HOST_V6)
    )
    STORED.pack_into(record, position, store_timestamp_ms, store_host)
    if property_crc:
        set_property_crc(record)


def encode_record(
    *,
    topic: str,
    queue_id: int,
    body: Buffer,
    properties_block: bytes = b"",
    flag: int = 0,
    sys_flag: int = 0,
    queue_offset: int = 0,
    commit_offset: int = 0,
    born_timestamp_ms: int = 0,
    born_host: str = ANY_HOST,
    store_timestamp_ms: int = 0,
    store_host: str = ANY_HOST,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    append_property_crc: bool = False,
) -> bytes:
    """Encode a record, in version 2 if the topic needs it; hosts set their bits of ``sys_flag``.

    ``append_property_crc`` adds a trailer, or fills the one that ``properties_block`` ends with.
    ValueError for a property block or a topic too long for its length field.
    """
    born_host_bytes, store_host_bytes = encode_host(born_host), encode_host(store_host)
    if append_property_crc:
        properties_block = reserve_property_crc_trailer(properties_block)
    topic_bytes = topic.encode()
    long_topic = len(topic_bytes) > TOPIC_SIZE_MAX_V1
    for name, length in (("topic", len(topic_bytes)), ("properties", len(properties_block))):
        if length > PROPERTIES_SIZE_MAX:
            raise ValueError(f"{name}: {length} bytes, more than {PROPERTIES_SIZE_MAX}")
    sys_flag &= ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
    if len(born_host_bytes) == IPV6_HOST_SIZE:
        sys_flag |= SYS_FLAG_BORN_HOST_V6
    if len(store_host_bytes) == IPV6_HOST_SIZE:
        sys_flag |= SYS_FLAG_STORE_HOST_V6
    tail = b"".join(
        (
            born_host_bytes,
            STORE_TIMESTAMP.pack(store_timestamp_ms),
            store_host_bytes,
            AFTER_HOSTS.pack(reconsume_times, prepared_transaction_offset, len(body)),
            body,
            (TOPIC_LENGTH_V2 if long_topic else TOPIC_LENGTH_V1).pack(len(topic_bytes)),
            topic_bytes,
            PROPERTIES_LENGTH.pack(len(properties_block)),
            properties_block,
        )
    )
    head = HEAD.pack(
        HEAD.size + len(tail), MAGIC_V2 if long_topic else MAGIC_V1, body_crc(body), queue_id, flag,
        queue_offset, commit_offset, sys_flag, born_timestamp_ms,
    )  # fmt: skip
    if not append_property_crc:
        return head + tail
    record = bytearray(head + tail)
    set_property_crc(record)
    return bytes(record)


def encode_for_batch(
    topic: str,
    queue_id: int,
    body: Buffer,
    properties_bytes: bytes,
    flag: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: str,
    reserve_property_crc: bool = True,
) -> bytes:
    """Encode a record as a client puts it in a batch: what the store will fill in is zero.

    That is queue offset, commit offset, store timestamp, store host (IPv4) and, where reserved, the
    digits of the property CRC. ValueError as of ``encode_record``.
    """
    if reserve_property_crc:
        properties_bytes = reserve_property_crc_trailer(properties_bytes)
    born_host_bytes = encode_host(born_host)
    topic_bytes = topic.encode()
    sizes = len(body), len(topic_bytes), len(properties_bytes)
    if (
        len(born_host_bytes) == IPV4_HOST_SIZE
        and sizes[1] <= TOPIC_SIZE_MAX_V1
        and sizes[2] <= PROPERTIES_SIZE_MAX
    ):
        return b"".join(
            (
                UNTIL_BODY.pack(
                    RECORD_SIZE_MIN + sum(sizes), MAGIC_V1, body_crc(body), queue_id, flag, 0, 0,
                    sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6),
                    born_timestamp_ms, born_host_bytes, 0, _ANY_HOST, 0, 0, sizes[0],
                ),
                body,
                TOPIC_LENGTH_V1.pack(sizes[1]),
                topic_bytes,
                PROPERTIES_LENGTH.pack(sizes[2]),
                properties_bytes,
            )
        )  # fmt: skip
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties_block=properties_bytes,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        born_host=born_host,
    )


def reserve_property_crc_trailer(properties_block: bytes) -> bytes:
    """Return the block with a zero-digit trailer at its end, terminating the last pair if needed."""
    if has_property_crc(properties_block):
        return properties_block
    if properties_block and properties_block[-1] != PROPERTY_END:
        properties_block += b"\x02"
    return properties_block + _ZERO_TRAILER


def encode_blank(remaining: int) -> bytes:
    """Encode the blank record that ends a file with ``remaining`` bytes left, these 8 included."""
    if remaining < BLANK_SIZE:
        raise ValueError(f"a blank record takes {BLANK_SIZE} bytes, only {remaining} are left")
    return BLANK.pack(remaining, MAGIC_BLANK)
