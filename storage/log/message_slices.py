"""Appending one plain message that lies in a buffer: its record is written from there, in two compiled steps.

It stores what ``storage.log.message_encoder`` would. A message that may have to be refused is left
alone: the encoder refuses it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.format.hosts import IPV4_HOST_SIZE, encode_host
from storage.format.names import topic_name_problem
from storage.kernels.encode import ANY_QUEUE
from storage.kernels.message_slices import (
    BORN_HOST_AT,
    FIELD_COUNT,
    HEAD_SIZE,
    SIZES,
    STORE_HOST_AT,
    UNIQUE_AT,
    UNIQUE_HEAD_SIZE,
    UNIQUE_KEY,
    measure_plain,
    write_plain,
)
from storage.log.batches import check_sends

if TYPE_CHECKING:
    from storage.files.mapped_file import MappedFile
    from storage.log.batches import QueueKey
    from storage.log.message_encoder import MessageEncoder
    from storage.tables.topic_table import TopicTable
    from storage.tables.topics import TopicConfig

COUNTER_BITS: Final = 16


class MessageSlices:
    """A buffer with one message in it, and where each of its fields lies.

    ``data`` is of uint8; the first HEAD_SIZE bytes are the store's, the rest the caller's. ``fields`` is of
    int64 as ``storage.kernels.message_slices`` lays it out. ``view`` is ``data`` for slices of bytes. A
    buffer is used again for the next message, by one thread at a time.
    """

    def __init__(self, size_bytes: int, *, store_host: bytes, unique_head: str) -> None:
        """Make a buffer of a store with that host, encoded, of IPv4."""
        self.data = np.zeros(max(size_bytes, HEAD_SIZE), np.uint8)
        self.fields = np.zeros(FIELD_COUNT, np.int64)
        self.view = memoryview(self.data.data)
        self._born_host = ""
        self.view[STORE_HOST_AT : STORE_HOST_AT + IPV4_HOST_SIZE] = store_host
        self.view[UNIQUE_AT : UNIQUE_AT + UNIQUE_HEAD_SIZE] = unique_head.encode()

    def put_born_host(self, born_host: str) -> bool:
        """Write the born host; False if it is not of IPv4."""
        if born_host == self._born_host:
            return True
        encoded = encode_host(born_host)
        if len(encoded) != IPV4_HOST_SIZE:
            return False
        self.view[BORN_HOST_AT : BORN_HOST_AT + IPV4_HOST_SIZE] = encoded
        self._born_host = born_host
        return True


class _Met(NamedTuple):
    """A topic that may be written to, as it was when it was met."""

    config: TopicConfig
    name: bytes
    queue_count: int
    turn: itertools.count[int]


class PlainMessages:
    """Finds where a message goes and writes its record; both under the writer's append lock."""

    def __init__(
        self, topics: TopicTable, encoder: MessageEncoder, *, body_size_max: int,
        record_size_max: int, property_crc: bool,
    ) -> None:  # fmt: skip
        """Share turns and unique keys with ``encoder``."""
        self._topics = topics
        self._encoder = encoder
        self._unique_keys = encoder.unique_keys
        self._body_size_max = body_size_max
        self._record_size_max = record_size_max
        self._property_crc = property_crc
        self._met: dict[bytes, _Met] = {}

    def find(self, message: MessageSlices, born_host: str) -> tuple[QueueKey, int] | None:
        """Return the queue of a message and its record's size.

        None, and nothing changed, if the message is not plain or is to be refused.
        """
        size, topic_begin, topic_end, queue_id = measure_plain(
            message.data, self._body_size_max, self._property_crc, message.fields
        )
        if not 0 <= size <= self._record_size_max:
            return None
        name = message.view[topic_begin:topic_end].tobytes()
        met = self._met.get(name)
        if met is None or self._topics.find(met.config.name) is not met.config:
            met = self._meet(name)
            if met is None:
                return None
        if not message.put_born_host(born_host):
            return None
        check_sends({met.config.name})
        if queue_id == ANY_QUEUE:
            queue_id = next(met.turn) % met.queue_count
        elif queue_id >= met.queue_count:
            return None
        return (met.name, queue_id), size

    def write(
        self, message: MessageSlices, file: MappedFile, queue_id: int, queue_offset: int,
        store_timestamp_ms: int,
    ) -> None:  # fmt: skip
        """Store the record of a message that was found at the file's appended position.

        The file has room for it. The position is not moved: that makes the record count.
        """
        position = file.appended_position
        discriminator = moment = 0
        if not message.fields.item(SIZES + UNIQUE_KEY):
            discriminator, month_ms, counter = self._unique_keys.parts(store_timestamp_ms)
            moment = month_ms << COUNTER_BITS | counter
        written = write_plain(
            file.write_array, position, message.data, message.fields, queue_id, queue_offset,
            file.start_offset + position, store_timestamp_ms, discriminator, moment,
            self._property_crc,
        )  # fmt: skip
        assert written

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
