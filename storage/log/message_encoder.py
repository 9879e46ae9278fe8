"""Messages given as values become records as a client's batch has them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from storage.errors import InvalidMessage, QueueNotFound
from storage.format.compression import COMPRESSION_BITS
from storage.format.limits import check_body, check_topic, checked_properties
from storage.format.properties import (
    DELAY,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    encode_properties,
)
from storage.format.record import encode_for_batch
from storage.log.unique_keys import UniqueKeys

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.message import Message
    from storage.tables.topic_table import TopicTable
    from storage.tables.topics import TopicConfig

_FLAG_MIN, _FLAG_MAX = -(1 << 31), (1 << 31) - 1
_DELAY_MAX: Final = 10**15 - 1
_TIMESTAMP_MAX: Final = (1 << 63) - 1


def delay_properties(message: Message) -> bytes:
    """Return the property by which a message asks for its delay. Raises InvalidMessage."""
    asked = {
        "delay_level": (DELAY, message.delay_level),
        "deliver_at_ms": (TIMER_DELIVER_MS, message.deliver_at_ms),
        "delay_ms": (TIMER_DELAY_MS, message.delay_ms),
    }
    chosen = {field: pair for field, pair in asked.items() if pair[1]}
    field, (name, value) = next(iter(chosen.items()))
    if len(chosen) > 1:
        raise InvalidMessage(
            field, "give a delay level, a delay or a time of delivery, one of them"
        )
    if not 0 < value <= _DELAY_MAX:
        raise InvalidMessage(field, f"{value} is not a delay")
    return encode_properties({name: str(value)})


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
        self._checked: dict[
            str, TopicConfig
        ] = {}  # topics whose names were checked, as they were then
        self._turns: dict[str, itertools.count[int]] = {}

    def encode(self, message: Message, born_host: str) -> tuple[bytes, str, int]:
        """Return the record, its unique key and its queue id.

        Raises InvalidMessage, TopicNotFound, QueueNotFound.
        """
        topic = self._checked.get(message.topic)
        if topic is None or self._topics.find(message.topic) is not topic:
            check_topic(message.topic)
            topic = self._checked[message.topic] = self._topics.get(message.topic, to_send=True)
        queue_id = self._queue_id(topic, message.queue_id)
        check_body(len(message.body), self._body_size_max)
        if not _FLAG_MIN <= message.flag <= _FLAG_MAX:
            raise InvalidMessage("flag", "must fit in 32 bits")
        if message.sys_flag & ~COMPRESSION_BITS:
            raise InvalidMessage("sys_flag", "says more than how the body is compressed")
        born_timestamp_ms = message.born_timestamp_ms or self._clock.now_ms()
        if not 0 <= born_timestamp_ms <= _TIMESTAMP_MAX:
            raise InvalidMessage(
                "born_timestamp_ms", f"{born_timestamp_ms} is not a Unix time in ms"
            )
        unique_key = message.unique_key or self.unique_keys.make()
        properties = checked_properties(
            message.keys,
            message.tag,
            message.properties,
            unique_key,
            property_crc=self._property_crc,
        )
        if message.is_delayed:
            properties += delay_properties(message)
        record = encode_for_batch(
            message.topic, queue_id, message.body, properties, message.flag, message.sys_flag,
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
