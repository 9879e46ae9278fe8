"""The structured door: messages as values become the records that a client's batch holds."""

from __future__ import annotations

import itertools
import os
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from storage.errors import InvalidMessage, QueueNotFound
from storage.format.hosts import encode_host
from storage.format.limits import check_body, check_topic, checked_properties
from storage.format.message_id import PROCESS_ID
from storage.format.record import encode_for_batch

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.message import Message
    from storage.tables.topics import TopicConfig, TopicTable

PORT_SIZE: Final = 4
_FLAG_MIN, _FLAG_MAX = -(1 << 31), (1 << 31) - 1
_TIMESTAMP_MAX: Final = (1 << 63) - 1


class UniqueKeys:
    """Makes unique keys in a client's shape: address, process, moment, counter."""

    def __init__(self, host: str, clock: Clock) -> None:
        address = encode_host(host)[:-PORT_SIZE]
        self.head = (address + PROCESS_ID.pack(os.getpid() & 0xFFFF)).hex().upper()
        self._discriminator = secrets.randbits(32)
        self._counter = itertools.count(secrets.randbits(16))
        self._clock = clock
        self._month = (0, 0)  # from, to: Unix milliseconds

    def make(self) -> str:
        """Return a key that no other call returns within the month."""
        discriminator, month_ms, counter = self.parts(self._clock.now_ms())
        return f"{self.head}{discriminator:08X}{month_ms:08X}{counter:04X}"

    def parts(self, now_ms: int) -> tuple[int, int, int]:
        """Return what follows ``head`` in the next key: discriminator, month_ms, counter."""
        month_ms = self._month
        if not month_ms[0] <= now_ms < month_ms[1]:
            moment = datetime.fromtimestamp(now_ms / 1000, UTC)
            begin = datetime(moment.year, moment.month, 1, tzinfo=UTC)
            year, month = divmod(moment.year * 12 + moment.month, 12)
            end = datetime(year, month + 1, 1, tzinfo=UTC)
            month_ms = int(begin.timestamp()) * 1000, int(end.timestamp()) * 1000
            self._month = month_ms
        counter = next(self._counter)
        # More than 65,536 in one millisecond run over into the discriminator.
        discriminator = self._discriminator + (counter >> 16) & 0xFFFF_FFFF
        return discriminator, now_ms - month_ms[0], counter & 0xFFFF


class MessageEncoder:
    """Checks messages and encodes them, one after the other."""

    def __init__(
        self, topics: TopicTable, clock: Clock, *, store_host: str, body_size_max: int,
        property_crc: bool,
    ) -> None:  # fmt: skip
        self._topics = topics
        self._clock = clock
        self._body_size_max = body_size_max
        self._property_crc = property_crc
        self.unique_keys = UniqueKeys(store_host, clock)
        self._met: dict[str, TopicConfig] = {}  # with a lawful name, as they were then
        self._turns: dict[str, itertools.count[int]] = {}

    def encode(self, message: Message, born_host: str) -> tuple[bytes, str, int]:
        """Return the record, its unique key and its queue id.

        Raises InvalidMessage, TopicNotFound, QueueNotFound.
        """
        topic = self._met.get(message.topic)
        if topic is None or self._topics.find(message.topic) is not topic:
            check_topic(message.topic)
            topic = self._met[message.topic] = self._topics.get(message.topic, to_send=True)
        queue_id = self._queue_id(topic, message.queue_id)
        check_body(len(message.body), self._body_size_max)
        if message.delay_level > 0:
            raise InvalidMessage("delay_level", "delayed messages are not supported yet")
        if not _FLAG_MIN <= message.flag <= _FLAG_MAX:
            raise InvalidMessage("flag", "must fit in 32 bits")
        born_timestamp_ms = message.born_timestamp_ms or self._clock.now_ms()
        if not 0 <= born_timestamp_ms <= _TIMESTAMP_MAX:
            raise InvalidMessage("born_timestamp_ms", f"{born_timestamp_ms} is no Unix time in ms")
        unique_key = message.unique_key or self.unique_keys.make()
        properties = checked_properties(
            keys=message.keys,
            tag=message.tag,
            properties=message.properties,
            unique_key=unique_key,
            property_crc=self._property_crc,
        )
        record = encode_for_batch(
            message.topic, queue_id, message.body, properties, message.flag, 0,
            born_timestamp_ms, born_host, self._property_crc,
        )  # fmt: skip
        return record, unique_key, queue_id

    def _queue_id(self, topic: TopicConfig, wanted: int | None) -> int:
        count = topic.write_queue_count
        if wanted is None:
            return next(self.turn_of(topic.name)) % count
        if not 0 <= wanted < count:
            raise QueueNotFound(topic.name, wanted, count)
        return wanted

    def turn_of(self, topic: str) -> itertools.count[int]:
        """Return what counts the topic's messages that name no queue."""
        return self._turns.setdefault(topic, itertools.count())
