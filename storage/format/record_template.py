"""Many records of one topic and queue, encoded for a batch with what they share made only once.

The result is that of ``record.encode_for_batch``; the layout is ``record``'s, cut at the three
places where records of one template differ: total size and body CRC, body length and body, and the
property block.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final
from zlib import crc32

from storage.format.hosts import ANY_HOST
from storage.format.properties import PROPERTIES_SIZE_MAX
from storage.format.property_crc import CRC_MASK, Buffer, reserve_property_crc_trailer
from storage.format.record import encode_for_batch
from storage.format.record_layout import (
    AFTER_HOSTS,
    BLANK,
    HEAD,
    PROPERTIES_LENGTH,
    QUEUE_ID_POSITION,
    STORE_TIMESTAMP,
)

TRAILER: Final = reserve_property_crc_trailer(b"")
"""A reserved property CRC: what the property block of a batched record ends with."""


class RecordTemplate:
    """Encoder of records that differ in body and properties only."""

    __slots__ = ("_crc32", "_fixed_size", "_magic", "_pack", "_shared", "_topic")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: str = ANY_HOST,
        crc: Callable[[Buffer], int] = crc32,
    ) -> None:
        """Take what the records share; ValueError as of ``encode_for_batch``.

        ``crc`` computes CRC-32; a faster one than zlib's may be given.
        """
        empty = encode_for_batch(
            topic, queue_id, b"", b"", flag, sys_flag, born_timestamp_ms, born_host
        )
        topic_bytes = topic.encode()
        topic_end = len(empty) - len(TRAILER) - PROPERTIES_LENGTH.size
        topic_length_size = 1 if len(topic_bytes) <= 127 else 2
        body_at = topic_end - len(topic_bytes) - topic_length_size
        body_length_at = body_at - BLANK.size // 2
        self._magic = BLANK.unpack_from(empty)[1]
        self._shared = empty[QUEUE_ID_POSITION:body_length_at]
        self._topic = empty[body_at:topic_end]
        self._fixed_size = len(empty) - len(TRAILER)
        self._crc32 = crc
        self._pack = Struct(
            ">i"  # total_size
            "I"  # magic
            "i"  # body_crc
            f"{len(self._shared)}s"  # queue_id to prepared_transaction_offset
            "i"  # body_length
        ).pack
        assert body_at >= HEAD.size + STORE_TIMESTAMP.size + AFTER_HOSTS.size

    def encode(self, body: Buffer, properties_block: bytes) -> bytes:
        """Encode one record; the block must end with `TRAILER` and be at most 32,767 bytes."""
        body_length = len(body)
        block_length = len(properties_block)
        if block_length > PROPERTIES_SIZE_MAX:
            raise ValueError(f"properties: {block_length} bytes, more than {PROPERTIES_SIZE_MAX}")
        return b"".join(
            (
                self._pack(
                    self._fixed_size + body_length + block_length,
                    self._magic,
                    self._crc32(body) & CRC_MASK,
                    self._shared,
                    body_length,
                ),
                body,
                self._topic,
                PROPERTIES_LENGTH.pack(block_length),
                properties_block,
            )
        )
