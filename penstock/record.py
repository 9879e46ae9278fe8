"""Records as a client reads them: views of the bytes that came, decoded field by field when asked.

Iterating `Records` reads the size of each; a record decodes its other fields when they are asked for. The
reader has verified checksums and framing, so nothing is verified twice here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

from penstock.errors import UnreadableBody
from penstock.v1 import common_pb2
from storage import errors as store_errors
from storage.format.compression import COMPRESSED, COMPRESSION_BITS, decompress
from storage.format.hosts import decode_host, host_size
from storage.format.message_id import encode_message_id
from storage.format.properties import (
    CRC32,
    KEYS,
    PRODUCER_SEQUENCE,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    split_keys,
)
from storage.format.record_layout import (
    AFTER_HOSTS,
    BLANK,
    BORN_HOST_POSITION,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    STORE_TIMESTAMP,
    SYS_FLAG_AND_BODY_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    TOTAL_SIZE,
    UNTIL_BODY,
)

_OWN: Final = frozenset({CRC32, PRODUCER_SEQUENCE})
_V6_HOSTS: Final = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
# Of UNTIL_BODY's fields:
_QUEUE_OFFSET, _COMMIT_OFFSET, _SYS_FLAG, _BORN_TIMESTAMP, _STORE_TIMESTAMP = 5, 6, 7, 8, 10
_RECONSUME_TIMES, _PREPARED_OFFSET, _BODY_LENGTH = 12, 13, 14
_UNUSUAL_BODY: Final = COMPRESSED | _V6_HOSTS


def _wider_by(sys_flag: int) -> int:
    """Return how many more bytes a record's hosts take than two of IPv4."""
    born, store = sys_flag & SYS_FLAG_BORN_HOST_V6, sys_flag & SYS_FLAG_STORE_HOST_V6
    return host_size(ipv6=bool(born)) + host_size(ipv6=bool(store)) - 2 * host_size(ipv6=False)


def head_of(data: memoryview, position: int) -> tuple[Any, ...]:
    """Return the fields of the record at ``position`` as of UNTIL_BODY; its hosts are to be read elsewhere."""
    head = UNTIL_BODY.unpack_from(data, position)
    if not head[_SYS_FLAG] & _V6_HOSTS:
        return head
    after = position + UNTIL_BODY.size + _wider_by(head[_SYS_FLAG]) - AFTER_HOSTS.size
    born_ipv6 = bool(head[_SYS_FLAG] & SYS_FLAG_BORN_HOST_V6)
    stored_at = position + BORN_HOST_POSITION + host_size(ipv6=born_ipv6)
    return (
        *head[:9], b"", *STORE_TIMESTAMP.unpack_from(data, stored_at), b"",
        *AFTER_HOSTS.unpack_from(data, after),
    )  # fmt: skip


class Record:
    """One stored record; fields are read from its bytes when they are asked for.

    Valid as long as it is referenced; it keeps the response it came in alive.
    """

    __slots__ = ("_body", "_data", "_head", "_position", "_properties")

    def __init__(self, data: memoryview, position: int) -> None:
        """Take the record at a position; `Records` sets the same without a call for each."""
        self._data = data
        self._position = position
        self._head: tuple[Any, ...] | None = None
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None

    @classmethod
    def from_proto(cls, record: common_pb2.Record) -> DecodedRecord:
        """Return a record that the service decoded."""
        return DecodedRecord(record)

    def _fields(self) -> tuple[Any, ...]:
        """Return the fields before the body, as of UNTIL_BODY."""
        if self._head is None:
            self._head = head_of(self._data, self._position)
        return self._head

    def _body_range(self) -> tuple[int, int]:
        position = self._position
        begin = position + UNTIL_BODY.size
        sys_flag, length = SYS_FLAG_AND_BODY_LENGTH.unpack_from(
            self._data, position + SYS_FLAG_POSITION
        )
        if sys_flag & _V6_HOSTS:
            begin, length = begin + _wider_by(sys_flag), self._fields()[_BODY_LENGTH]
        return begin, begin + length

    def _topic_range(self) -> tuple[int, int]:
        _, magic = BLANK.unpack_from(self._data, self._position)
        length = TOPIC_LENGTH_V2 if magic == MAGIC_V2 else TOPIC_LENGTH_V1
        _, at = self._body_range()
        begin = at + length.size
        return begin, begin + length.unpack_from(self._data, at)[0]

    @property
    def raw(self) -> memoryview:
        """The record's bytes as they are in the commit log."""
        return self._data[self._position : self._position + self.size]

    @property
    def size(self) -> int:
        """Bytes of the whole record in the commit log."""
        return int(self._fields()[0])

    @property
    def queue_id(self) -> int:
        """The queue it is in."""
        return int(self._fields()[3])

    @property
    def flag(self) -> int:
        """The application's flag."""
        return int(self._fields()[4])

    @property
    def queue_offset(self) -> int:
        """Its number in its queue."""
        return int(self._fields()[_QUEUE_OFFSET])

    @property
    def commit_offset(self) -> int:
        """Where it starts in the commit log."""
        return int(self._fields()[_COMMIT_OFFSET])

    @property
    def sys_flag(self) -> int:
        """The store's flag bits."""
        return int(self._fields()[_SYS_FLAG])

    @property
    def born_timestamp_ms(self) -> int:
        """When the producer made it."""
        return int(self._fields()[_BORN_TIMESTAMP])

    @property
    def store_timestamp_ms(self) -> int:
        """When the store took it."""
        return int(self._fields()[_STORE_TIMESTAMP])

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
        begin = self._position + BORN_HOST_POSITION
        ipv6 = bool(self._fields()[_SYS_FLAG] & SYS_FLAG_BORN_HOST_V6)
        return begin, begin + host_size(ipv6=ipv6), self._body_range()[0] - AFTER_HOSTS.size

    @property
    def reconsume_times(self) -> int:
        """How often it was consumed again."""
        return int(self._fields()[_RECONSUME_TIMES])

    @property
    def prepared_transaction_offset(self) -> int:
        """Commit offset of the half message of a committed transaction."""
        return int(self._fields()[_PREPARED_OFFSET])

    @property
    def body(self) -> bytes:
        """The body as the producer gave it, decompressed if need be. Raises UnreadableBody if it cannot be."""
        if self._body is None:
            data, position = self._data, self._position
            sys_flag, length = SYS_FLAG_AND_BODY_LENGTH.unpack_from(
                data, position + SYS_FLAG_POSITION
            )
            if sys_flag & _UNUSUAL_BODY:
                body = self.stored_body
                self._body = self._decompressed(body) if sys_flag & COMPRESSED else body
            else:
                begin = position + UNTIL_BODY.size
                self._body = data[begin : begin + length].tobytes()
        return self._body

    @property
    def stored_body(self) -> bytes:
        """The body as stored, compressed by `compression_flags`."""
        begin, end = self._body_range()
        return self._data[begin:end].tobytes()

    def body_or_stored(self) -> tuple[bytes, str]:
        """Return the body and "", or the body as stored and why it cannot be unpacked."""
        try:
            return self.body, ""
        except UnreadableBody as error:
            return self.stored_body, error.problem

    @property
    def compression_flags(self) -> int:
        """The bits of the system flag that name the compression of `stored_body`; 0: none."""
        sys_flag = self.sys_flag
        return sys_flag & COMPRESSION_BITS if sys_flag & COMPRESSED else 0

    def _decompressed(self, body: bytes) -> bytes:
        try:
            return decompress(body, self.sys_flag)
        except store_errors.UnreadableBody as error:
            raise self._unreadable(str(error)) from error

    def _unreadable(self, problem: str) -> UnreadableBody:
        return UnreadableBody(
            f"the body of message {self.message_id} (queue {self.queue_id} of topic {self.topic!r},"
            f" offset {self.queue_offset}) cannot be unpacked: {problem}",
            problem=problem,
            topic=self.topic,
            queue_id=self.queue_id,
            queue_offset=self.queue_offset,
        )

    @property
    def topic(self) -> str:
        """The topic."""
        begin, end = self._topic_range()
        return str(self._data[begin:end], "utf-8")

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, KEYS, TAGS and UNIQ_KEY included; the store's own are left out."""
        if self._properties is None:
            _, at = self._topic_range()
            begin = at + PROPERTIES_LENGTH.size
            length = PROPERTIES_LENGTH.unpack_from(self._data, at)[0]
            self._properties = decode_properties(bytes(self._data[begin : begin + length]))
            for name in _OWN:
                self._properties.pop(name, None)
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
            f" {self._fields()[_BODY_LENGTH]} bytes>"
        )


class DecodedRecord(Record):
    """A record that the service decoded; it has the same fields and no raw bytes."""

    __slots__ = ("_record",)

    def __init__(self, record: common_pb2.Record) -> None:
        super().__init__(memoryview(b""), 0)
        self._head = (
            record.size, 0, 0, record.queue_id, record.flag, record.queue_offset,
            record.commit_offset, record.sys_flag, record.born_timestamp_ms,
            b"", record.store_timestamp_ms, b"",
            record.reconsume_times, record.prepared_transaction_offset, len(record.body),
        )  # fmt: skip
        self._record = record
        self._body = None if record.body_problem else record.body
        self._properties = {k: v for k, v in record.properties.items() if k not in _OWN}

    @property
    def body(self) -> bytes:
        """The body as the service decompressed it. Raises UnreadableBody if it could not."""
        if self._body is None:
            raise self._unreadable(self._record.body_problem)
        return self._body

    @property
    def stored_body(self) -> bytes:
        """The body as the service gave it: as it is stored only if it cannot be decompressed."""
        return self._record.body

    @property
    def compression_flags(self) -> int:
        """The bits that say how `stored_body` is compressed: 0 where the service has decompressed it."""
        return super().compression_flags if self._record.body_problem else 0

    @property
    def topic(self) -> str:
        """The topic."""
        return self._record.topic

    @property
    def born_host(self) -> str:
        """``address:port`` of the producer."""
        return self._record.born_host

    @property
    def store_host(self) -> str:
        """``address:port`` of the store."""
        return self._record.store_host

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
        raw, new, size_at = self.raw, object.__new__, TOTAL_SIZE.unpack_from
        position, end = 0, len(raw)
        while position < end:
            record = new(Record)  # and set here: a call of __init__ takes longer than all the rest
            record._data = raw
            record._position = position
            record._head = record._properties = record._body = None
            yield record
            position += size_at(raw, position)[0]

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

    def end_of(self, count: int, position: int) -> int:
        """Return where ``count`` records end, of which the first is at a position of ``raw``."""
        raw, size_at = self.raw, TOTAL_SIZE.unpack_from
        for _ in range(count):
            position += size_at(raw, position)[0]
        return position

    def __repr__(self) -> str:
        return f"<{self._count} records, {len(self.raw)} bytes>"
