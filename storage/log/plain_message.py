"""The structured door's short cut: one plain message, from the bytes of its request to the log.

It stores and answers what ``storage.log.structured`` would, in two compiled steps. Whatever has to be
judged, it leaves alone: a refusal is always the long way's.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.format.hosts import IPV4_HOST_SIZE, encode_host
from storage.format.names import topic_name_problem
from storage.kernels.encode import ANY_QUEUE
from storage.kernels.plain_message import (
    BORN_HOST_AT,
    FIELD_COUNT,
    REQUEST_AT,
    REQUEST_SIZE_MAX,
    SCRATCH_SIZE,
    SIZES,
    STORE_HOST_AT,
    UNIQUE_AT,
    UNIQUE_HEAD_SIZE,
    UNIQUE_KEY,
    read_plain,
    write_plain,
)

if TYPE_CHECKING:
    from storage.files.mapped_file import MappedFile
    from storage.log.batches import QueueKey
    from storage.log.structured import MessageEncoder
    from storage.tables.topics import TopicConfig, TopicTable

COUNTER_BITS: Final = 16


class _Met(NamedTuple):
    """A topic that may be written to, as it was when it was met."""

    config: TopicConfig
    name: bytes
    queue_count: int
    turn: itertools.count[int]


class PlainMessages:
    """Reads a request and writes its record; both under the writer's append lock."""

    def __init__(
        self, topics: TopicTable, encoder: MessageEncoder, *, store_host: bytes,
        body_size_max: int, record_size_max: int, property_crc: bool,
    ) -> None:  # fmt: skip
        """Share turns and unique keys with ``encoder``; ``store_host`` is one of IPv4, encoded."""
        self._topics = topics
        self._encoder = encoder
        self._unique_keys = encoder.unique_keys
        self._body_size_max = body_size_max
        self._record_size_max = record_size_max
        self._property_crc = property_crc
        self._met: dict[bytes, _Met] = {}
        self._born_host = ""
        self._fields = np.zeros(FIELD_COUNT, np.int64)
        self._scratch = np.zeros(SCRATCH_SIZE, np.uint8)
        self._view = memoryview(self._scratch.data)
        self._view[STORE_HOST_AT : STORE_HOST_AT + IPV4_HOST_SIZE] = store_host
        self._view[UNIQUE_AT : UNIQUE_AT + UNIQUE_HEAD_SIZE] = self._unique_keys.head.encode()

    def read(self, request: bytes, born_host: str) -> tuple[QueueKey, int] | None:
        """Return where the message of a serialized ProduceRequest goes, and its record's size.

        None, and nothing changed, if the request is not plain or is to be refused.
        """
        request_size = len(request)
        if request_size > REQUEST_SIZE_MAX:
            return None
        view = self._view
        view[REQUEST_AT : REQUEST_AT + request_size] = request
        size, topic_begin, topic_end, queue_id = read_plain(
            self._scratch, request_size, self._body_size_max, self._property_crc, self._fields
        )
        if not 0 <= size <= self._record_size_max:
            return None
        name = request[topic_begin - REQUEST_AT : topic_end - REQUEST_AT]
        met = self._met.get(name)
        if met is None or self._topics.find(met.config.name) is not met.config:
            met = self._meet(name)
            if met is None:
                return None
        if born_host != self._born_host and not self._take_born_host(born_host):
            return None
        if queue_id == ANY_QUEUE:
            queue_id = next(met.turn) % met.queue_count
        elif queue_id >= met.queue_count:
            return None
        return (met.name, queue_id), size

    def write(
        self, file: MappedFile, queue_id: int, queue_offset: int, store_timestamp_ms: int
    ) -> bytes:
        """Store the record of what was read at the file's appended position; return the answer.

        The file has room for it. The position is not moved: that makes the record count.
        """
        position = file.appended_position
        discriminator = moment = 0
        if not self._fields.item(SIZES + UNIQUE_KEY):
            discriminator, month_ms, counter = self._unique_keys.parts(store_timestamp_ms)
            moment = month_ms << COUNTER_BITS | counter
        begin, end = write_plain(
            file.write_array, position, self._scratch, self._fields, queue_id, queue_offset,
            file.start_offset + position, store_timestamp_ms, discriminator, moment,
            self._property_crc,
        )  # fmt: skip
        assert begin >= 0
        return self._view[begin:end].tobytes()

    def _meet(self, name: bytes) -> _Met | None:
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return None
        config = self._topics.find(topic)
        if (
            config is None
            or topic_name_problem(topic)
            or config.sending_problem
            or config.write_queue_count < 1
        ):
            return None
        turn = self._encoder.turn_of(topic)
        met = self._met[name] = _Met(config, name, config.write_queue_count, turn)
        return met

    def _take_born_host(self, born_host: str) -> bool:
        encoded = encode_host(born_host)
        if len(encoded) != IPV4_HOST_SIZE:
            return False
        self._view[BORN_HOST_AT : BORN_HOST_AT + IPV4_HOST_SIZE] = encoded
        self._born_host = born_host
        return True
