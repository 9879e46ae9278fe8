"""Records as a client reads them: views of the bytes that came, decoded field by field when asked.

Iterating `Records` only steps over the sizes; a record decodes its head at the first access and its
body, topic and properties each at their own. The reader has verified checksums and framing, so
nothing is verified twice here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

from penstock.v1 import common_pb2
from storage.format.compression import decompress
from storage.format.hosts import decode_host, host_size
from storage.format.message_id import encode_message_id
from storage.format.properties import CRC32, KEYS, TAGS, UNIQ_KEY, decode_properties, split_keys
from storage.format.record_layout import (
    AFTER_HOSTS,
    BORN_HOST_POSITION,
    HEAD,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    STORE_TIMESTAMP,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)

_SIZE_FIELD: Final = 4
_QUEUE_OFFSET, _COMMIT_OFFSET, _SYS_FLAG, _BORN_TIMESTAMP = 5, 6, 7, 8  # of HEAD's fields


class Record:
    """One stored record; fields are read from its bytes when they are asked for.

    Valid as long as it is referenced; it keeps the response it came in alive.
    """

    __slots__ = ("_body", "_body_at", "_data", "_head", "_position", "_properties", "_topic_at")

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        self._head: tuple[Any, ...] | None = None
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None

    @classmethod
    def from_proto(cls, record: common_pb2.Record) -> DecodedRecord:
        """Return a record that the service decoded."""
        return DecodedRecord(record)

    def _load(self) -> tuple[Any, ...]:
        at = self._position
        head = self._head = HEAD.unpack_from(self._data, at)
        hosts = host_size(ipv6=bool(head[_SYS_FLAG] & SYS_FLAG_BORN_HOST_V6)) + host_size(
            ipv6=bool(head[_SYS_FLAG] & SYS_FLAG_STORE_HOST_V6)
        )
        self._body_at = at + BORN_HOST_POSITION + hosts + STORE_TIMESTAMP.size + AFTER_HOSTS.size
        self._topic_at = self._body_at + self._after_hosts()[2]
        return head

    def _after_hosts(self) -> tuple[Any, ...]:
        return AFTER_HOSTS.unpack_from(self._data, self._body_at - AFTER_HOSTS.size)

    def _topic_range(self) -> tuple[int, int]:
        head = self._head or self._load()
        length = TOPIC_LENGTH_V2 if head[1] == MAGIC_V2 else TOPIC_LENGTH_V1
        begin = self._topic_at + length.size
        return begin, begin + length.unpack_from(self._data, self._topic_at)[0]

    @property
    def raw(self) -> memoryview:
        """The record's bytes as they are in the commit log."""
        return self._data[self._position : self._position + self.size]

    @property
    def size(self) -> int:
        """Bytes of the whole record in the commit log."""
        return int((self._head or self._load())[0])

    @property
    def queue_id(self) -> int:
        """The queue it is in."""
        return int((self._head or self._load())[3])

    @property
    def flag(self) -> int:
        """The application's flag."""
        return int((self._head or self._load())[4])

    @property
    def queue_offset(self) -> int:
        """Its number in its queue."""
        return int((self._head or self._load())[_QUEUE_OFFSET])

    @property
    def commit_offset(self) -> int:
        """Where it starts in the commit log."""
        return int((self._head or self._load())[_COMMIT_OFFSET])

    @property
    def sys_flag(self) -> int:
        """The store's flag bits."""
        return int((self._head or self._load())[_SYS_FLAG])

    @property
    def born_timestamp_ms(self) -> int:
        """When the producer made it."""
        return int((self._head or self._load())[_BORN_TIMESTAMP])

    @property
    def store_timestamp_ms(self) -> int:
        """When the store took it."""
        return int(STORE_TIMESTAMP.unpack_from(self._data, self._hosts_at()[1])[0])

    @property
    def born_host(self) -> str:
        """``address:port`` of the producer."""
        begin, end, _ = self._hosts_at()
        return decode_host(self._data[begin:end])

    @property
    def store_host(self) -> str:
        """``address:port`` of the store."""
        _, born_end, end = self._hosts_at()
        return decode_host(self._data[born_end + STORE_TIMESTAMP.size : end])

    def _hosts_at(self) -> tuple[int, int, int]:
        head = self._head or self._load()
        begin = self._position + BORN_HOST_POSITION
        born_end = begin + host_size(ipv6=bool(head[_SYS_FLAG] & SYS_FLAG_BORN_HOST_V6))
        return begin, born_end, self._body_at - AFTER_HOSTS.size

    @property
    def reconsume_times(self) -> int:
        """How often it was consumed again."""
        self._head or self._load()
        return int(self._after_hosts()[0])

    @property
    def prepared_transaction_offset(self) -> int:
        """Commit offset of the half message of a committed transaction."""
        self._head or self._load()
        return int(self._after_hosts()[1])

    @property
    def body(self) -> bytes:
        """The body as the producer gave it, decompressed if need be."""
        if self._body is None:
            sys_flag = (self._head or self._load())[_SYS_FLAG]
            body = bytes(self._data[self._body_at : self._topic_at])
            self._body = decompress(body, sys_flag) if sys_flag & 1 else body
        return self._body

    @property
    def topic(self) -> str:
        """The topic."""
        begin, end = self._topic_range()
        return str(self._data[begin:end], "utf-8")

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, KEYS, TAGS and UNIQ_KEY included; the record's own CRC is left out."""
        if self._properties is None:
            _, at = self._topic_range()
            begin = at + PROPERTIES_LENGTH.size
            length = PROPERTIES_LENGTH.unpack_from(self._data, at)[0]
            self._properties = decode_properties(bytes(self._data[begin : begin + length]))
            self._properties.pop(CRC32, None)
        return self._properties

    @property
    def keys(self) -> tuple[str, ...]:
        """The business keys."""
        return split_keys(self.properties.get(KEYS, ""))

    @property
    def tag(self) -> str:
        """The tag, "" without one."""
        return self.properties.get(TAGS, "")

    @property
    def unique_key(self) -> str:
        """The unique id, "" without one."""
        return self.properties.get(UNIQ_KEY, "")

    @property
    def message_id(self) -> str:
        """The offset message id, which `Client.message` takes."""
        return encode_message_id(self.store_host, self.commit_offset)

    def __repr__(self) -> str:
        return (
            f"<Record {self.topic} queue {self.queue_id} offset {self.queue_offset},"
            f" {len(self.body)} bytes>"
        )


class DecodedRecord(Record):
    """A record that the service decoded; it has the same fields and no raw bytes."""

    __slots__ = ("_record",)

    def __init__(self, record: common_pb2.Record) -> None:
        super().__init__(memoryview(b""), 0)
        self._record = record
        self._body = record.body
        self._properties = {k: v for k, v in record.properties.items() if k != CRC32}
        self._head = (
            record.size, 0, 0, record.queue_id, record.flag, record.queue_offset,
            record.commit_offset, record.sys_flag, record.born_timestamp_ms,
        )  # fmt: skip

    @property
    def topic(self) -> str:
        """The topic."""
        return self._record.topic

    @property
    def store_timestamp_ms(self) -> int:
        """When the store took it."""
        return self._record.store_timestamp_ms

    @property
    def born_host(self) -> str:
        """``address:port`` of the producer."""
        return self._record.born_host

    @property
    def store_host(self) -> str:
        """``address:port`` of the store."""
        return self._record.store_host

    @property
    def reconsume_times(self) -> int:
        """How often it was consumed again."""
        return self._record.reconsume_times

    @property
    def prepared_transaction_offset(self) -> int:
        """Commit offset of the half message of a committed transaction."""
        return self._record.prepared_transaction_offset

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return self._record.message_id


class Records(Sequence[Record]):
    """The records of one response, in order; ``raw`` holds them one after the other."""

    __slots__ = ("_count", "_positions", "raw")

    def __init__(self, raw: memoryview, count: int) -> None:
        self.raw = raw
        self._count = count
        self._positions: list[int] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        raw = self.raw
        position, end = 0, len(raw)
        while position < end:
            yield Record(raw, position)
            position += int.from_bytes(raw[position : position + _SIZE_FIELD])

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if self._positions is None:
            self._positions = [record._position for record in self]
        if isinstance(index, slice):
            return [Record(self.raw, position) for position in self._positions[index]]
        return Record(self.raw, self._positions[index])

    def __repr__(self) -> str:
        return f"<{self._count} records, {len(self.raw)} bytes>"
