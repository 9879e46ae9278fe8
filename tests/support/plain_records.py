"""Records encoded and judged by plain Python, with every field and every check: what the kernels are held against."""

from __future__ import annotations

from zlib import crc32

from storage.format.hosts import (
    ANY_HOST,
    IPV4_HOST_SIZE,
    IPV6_HOST_SIZE,
    PORT,
    PORT_MAX,
    encode_host,
)
from storage.format.properties import CRC32, PROPERTIES_SIZE_MAX
from storage.format.property_crc import (
    CRC_MASK,
    PROPERTY_CRC_DIGITS,
    PROPERTY_CRC_SIZE,
    TRAILER_FIXED_RIGHT_MIN,
    TRAILER_RIGHT_MIN,
    Buffer,
    has_property_crc,
    reserve_property_crc_trailer,
)  # fmt: skip
from storage.format.record import body_crc, frame
from storage.format.record_layout import (
    AFTER_HOSTS,
    BORN_HOST_POSITION,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    STORE_TIMESTAMP,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    TOPIC_SIZE_MAX_V1,
)  # fmt: skip
from storage.format.stops import Stop


def check_record(buffer: Buffer, position: int = 0, commit_offset: int | None = None) -> Stop:
    """Judge the bytes at ``position`` by every check that there is.

    Order: framing, body CRC, ports, topic, a property block that ends in zeros, property CRC where the
    trailer is there, and, unless ``commit_offset`` is None, the record's own commit offset.
    """
    stop, size, body_at, topic_at, topic_end = frame(buffer, position)
    if stop is not Stop.END:
        return stop
    head = HEAD.unpack_from(buffer, position)
    body_length = AFTER_HOSTS.unpack_from(buffer, body_at - AFTER_HOSTS.size)[2]
    body = memoryview(buffer)[body_at : body_at + body_length]
    if body_length and body_crc(body) != head[2] & CRC_MASK:
        return Stop.BODY_CRC
    store_host_end = body_at - AFTER_HOSTS.size
    is_v6 = head[7] & SYS_FLAG_BORN_HOST_V6
    born_host_end = position + BORN_HOST_POSITION + (IPV6_HOST_SIZE if is_v6 else IPV4_HOST_SIZE)
    for port_at in (born_host_end - PORT.size, store_host_end - PORT.size):
        if not 0 <= PORT.unpack_from(buffer, port_at)[0] <= PORT_MAX:
            return Stop.HOST
    if not topic_is_safe(bytes(buffer[topic_at:topic_end])):
        return Stop.TOPIC
    end = position + size
    if topic_end + 2 < end and not buffer[end - 1]:
        return Stop.PROPERTIES  # zeros where the tail was torn off, a property CRC maybe with it
    if end - topic_end - 2 >= PROPERTY_CRC_SIZE:
        tail = bytes(buffer[end - PROPERTY_CRC_SIZE : end])
        crc = crc32(memoryview(buffer)[position : end - PROPERTY_CRC_SIZE]) & CRC_MASK
        trailer = property_crc_trailer(crc)
        if tail != trailer and (has_property_crc(tail) or was_trailer(tail, trailer)):
            return Stop.PROPERTY_CRC
    if commit_offset is not None and head[6] != commit_offset:
        return Stop.COMMIT_OFFSET
    return Stop.END


def was_trailer(tail: bytes, trailer: bytes) -> bool:
    """Whether 20 bytes that are no trailer were ``trailer`` before they were damaged."""
    right = [is_byte == was_byte for is_byte, was_byte in zip(tail, trailer, strict=True)]
    name_end = len(CRC32)
    digits_right = sum(right[name_end + 1 : -1])
    if digits_right == PROPERTY_CRC_DIGITS:
        return True
    text = tail[:name_end] + tail[name_end + 1 : -1]
    if right[name_end] and right[-1] and min(text) >= 0x20:
        return False
    return sum(right) - digits_right >= TRAILER_FIXED_RIGHT_MIN or sum(right) >= TRAILER_RIGHT_MIN


def topic_is_safe(topic: bytes) -> bool:
    """Whether a topic could be a broker's: visible ASCII, no slash, not ``.`` or ``..``."""
    return (
        bool(topic)
        and all(0x21 <= byte <= 0x7E and byte != 0x2F for byte in topic)
        and topic not in (b".", b"..")
    )


def property_crc_trailer(crc: int) -> bytes:
    """Return the 20 bytes of a trailer for a masked CRC."""
    digits = str(crc).encode()[::-1].ljust(PROPERTY_CRC_DIGITS, b"0")
    return CRC32.encode() + b"\x01" + digits + b"\x02"


def set_property_crc(record: bytearray) -> None:
    """Write the digits of a record's reserved trailer, its last 20 bytes."""
    covered = len(record) - PROPERTY_CRC_SIZE
    record[covered:] = property_crc_trailer(crc32(memoryview(record)[:covered]) & CRC_MASK)


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
