"""One record of the commit log as a value: decoded and encoded. Its layout: ``record_layout``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from storage.format.compression import UNPACKED_SIZE_MAX, decompress
from storage.format.hosts import (
    IPV4_HOST_SIZE,
    IPV6_HOST_SIZE,
    decode_host,
    encode_host,
    host_size,
)
from storage.format.properties import PROPERTIES_SIZE_MAX, decode_properties
from storage.format.property_crc import (
    CRC_MASK,
    Buffer,
    reserve_property_crc_trailer,
)
from storage.format.record_layout import (
    AFTER_HOSTS,
    BLANK,
    BLANK_SIZE,
    BORN_HOST_POSITION,
    HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    TOPIC_SIZE_MAX_V1,
)
from storage.format.stops import Stop

_UNSTORED: Final = bytes(STORE_TIMESTAMP.size + IPV4_HOST_SIZE + AFTER_HOSTS.size - 4)


class MalformedRecord(ValueError):
    """The bytes do not frame a record; ``stop`` says at what they fail."""

    def __init__(self, stop: Stop, position: int) -> None:
        super().__init__(f"no record at position {position}: {stop.text}")
        self.stop = stop
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

    def decoded_body(self, *, size_max: int = UNPACKED_SIZE_MAX) -> bytes:
        """Return the body as the producer knew it. Raises UnreadableBody as of ``decompress``."""
        return decompress(self.body, self.sys_flag, size_max=size_max)


def body_crc(body: Buffer) -> int:
    """Return the CRC-32 of a stored body as the record keeps it: 31 bits."""
    return crc32(body) & CRC_MASK


def frame(buffer: Buffer, position: int) -> tuple[Stop, int, int, int, int]:
    """Check framing alone: (stop, size, body position, topic position, topic end)."""
    nothing = (0, 0, 0, 0)
    left = len(buffer) - position
    if position < 0 or left < BLANK_SIZE:
        return Stop.TRUNCATED, *nothing
    size, magic = BLANK.unpack_from(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        if magic == MAGIC_BLANK:
            return Stop.BLANK, *nothing
        return Stop.ZERO if size == magic == 0 else Stop.MAGIC, *nothing
    if size < RECORD_SIZE_MIN:
        return Stop.SIZE, *nothing
    if size > left:
        return Stop.TRUNCATED, *nothing
    end = position + size
    sys_flag = HEAD.unpack_from(buffer, position)[7]
    hosts = host_size(ipv6=bool(sys_flag & SYS_FLAG_BORN_HOST_V6)) + host_size(
        ipv6=bool(sys_flag & SYS_FLAG_STORE_HOST_V6)
    )
    topic_length = TOPIC_LENGTH_V2 if magic == MAGIC_V2 else TOPIC_LENGTH_V1
    smallest_rest = topic_length.size + PROPERTIES_LENGTH.size
    body_at = position + BORN_HOST_POSITION + hosts + STORE_TIMESTAMP.size + AFTER_HOSTS.size
    if body_at + smallest_rest > end:
        return Stop.LENGTHS, *nothing
    body_length = AFTER_HOSTS.unpack_from(buffer, body_at - AFTER_HOSTS.size)[2]
    if body_length < 0 or body_at + body_length + smallest_rest > end:
        return Stop.LENGTHS, *nothing
    (topic_size,) = topic_length.unpack_from(buffer, body_at + body_length)
    topic_at = body_at + body_length + topic_length.size
    if topic_size < 0 or topic_at + topic_size + PROPERTIES_LENGTH.size > end:
        return Stop.LENGTHS, *nothing
    (properties_size,) = PROPERTIES_LENGTH.unpack_from(buffer, topic_at + topic_size)
    if properties_size < 0 or topic_at + topic_size + 2 + properties_size != end:
        return Stop.LENGTHS, *nothing
    return Stop.END, size, body_at, topic_at, topic_at + topic_size


def decode_record(buffer: Buffer, position: int = 0) -> Record:
    """Decode the record at ``position``; its checksums are not looked at.

    Raises MalformedRecord for bytes that do not frame a record, or whose topic is not UTF-8.
    """
    stop, size, body_at, topic_at, topic_end = frame(buffer, position)
    if stop is not Stop.END:
        raise MalformedRecord(stop, position)
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
        raise MalformedRecord(Stop.TOPIC, position) from error
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
    digits of the property CRC. In version 2 if the topic needs it; the born host sets its bit of ``sys_flag``.
    ValueError for a property block or a topic too long for its length field.
    """
    if reserve_property_crc:
        properties_bytes = reserve_property_crc_trailer(properties_bytes)
    host, topic_bytes = encode_host(born_host), topic.encode()
    long_topic = len(topic_bytes) > TOPIC_SIZE_MAX_V1
    for name, length in (("topic", len(topic_bytes)), ("properties", len(properties_bytes))):
        if length > PROPERTIES_SIZE_MAX:
            raise ValueError(f"{name}: {length} bytes, more than {PROPERTIES_SIZE_MAX}")
    sys_flag &= ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
    if len(host) == IPV6_HOST_SIZE:
        sys_flag |= SYS_FLAG_BORN_HOST_V6
    tail = b"".join(
        (
            host,
            _UNSTORED,
            len(body).to_bytes(4, "big"),
            body,
            (TOPIC_LENGTH_V2 if long_topic else TOPIC_LENGTH_V1).pack(len(topic_bytes)),
            topic_bytes,
            PROPERTIES_LENGTH.pack(len(properties_bytes)),
            properties_bytes,
        )
    )
    head = HEAD.pack(
        HEAD.size + len(tail), MAGIC_V2 if long_topic else MAGIC_V1, body_crc(body), queue_id, flag,
        0, 0, sys_flag, born_timestamp_ms,
    )  # fmt: skip
    return head + tail


def encode_blank(remaining: int) -> bytes:
    """Encode the blank record that ends a file with ``remaining`` bytes left, these 8 included."""
    if remaining < BLANK_SIZE:
        raise ValueError(f"a blank record takes {BLANK_SIZE} bytes, only {remaining} are left")
    return BLANK.pack(remaining, MAGIC_BLANK)


def blank_end(buffer: Buffer, position: int) -> int:
    """Return the position where the file ends, by the word of the blank record at ``position``."""
    remaining: int = BLANK.unpack_from(buffer, position)[0]
    return position + remaining
