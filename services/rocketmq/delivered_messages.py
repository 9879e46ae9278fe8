"""Stored records as the messages that clients of RocketMQ receive."""

from __future__ import annotations

import hashlib
from typing import Final

from services.rocketmq import names
from services.rocketmq.times import fill
from services.rocketmq.v2 import definition_pb2 as v2
from storage.format import properties
from storage.format.message_id import encode_message_id
from storage.format.record import Record
from storage.format.record_layout import SYS_FLAG_COMPRESSED

_GZIP_MAGIC: Final = b"\x1f\x8b"
_BODY_BYTES_MAX: Final = 32 << 20  # of a body that was compressed otherwise


def message_of(
    record: Record, resource: v2.Resource, *, receipt_handle: str, attempt: int
) -> v2.Message:
    """Return a record as a message of the topic that was asked for, whatever topic it lies in."""
    found = record.properties
    body, encoding = _body(record)
    system = v2.SystemProperties(
        keys=properties.split_keys(found.get(properties.KEYS, "")),
        message_id=found.get(properties.UNIQ_KEY)
        or encode_message_id(record.store_host, record.commit_offset),
        body_digest=v2.Digest(
            type=v2.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        ),
        body_encoding=encoding,
        message_type=_type(found),
        born_host=found.get(names.BORN_HOST) or record.born_host,
        store_host=record.store_host,
        receipt_handle=receipt_handle,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=attempt,
    )
    fill(system.born_timestamp, record.born_timestamp_ms)
    fill(system.store_timestamp, record.store_timestamp_ms)
    if tag := found.get(properties.TAGS):
        system.tag = tag
    if message_group := found.get(properties.SHARDING_KEY):
        system.message_group = message_group
    if trace_context := found.get(names.TRACE_CONTEXT):
        system.trace_context = trace_context
    deliver_ms = found.get(properties.TIMER_DELIVER_MS, "")
    if deliver_ms.isascii() and deliver_ms.isdigit() and len(deliver_ms) < 15:
        fill(system.delivery_timestamp, int(deliver_ms))
    if origin := found.get(properties.DEAD_LETTER_ORIGIN_TOPIC):
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = found.get(
            properties.DEAD_LETTER_ORIGIN_MESSAGE_ID, ""
        )
    return v2.Message(
        topic=resource,
        user_properties={
            name: value
            for name, value in found.items()
            if name not in names.INTERNAL and name != names.TRACE_CONTEXT
        },
        system_properties=system,
        body=body,
    )


def _type(found: dict[str, str]) -> v2.MessageType:
    if found.get(properties.HALF_MESSAGE) == "true":
        return v2.TRANSACTION
    if (
        properties.DELAY in found
        or properties.TIMER_DELIVER_MS in found
        or properties.TIMER_DELAY_SEC in found
    ):
        return v2.DELAY
    return v2.FIFO if properties.SHARDING_KEY in found else v2.NORMAL


def _body(record: Record) -> tuple[bytes, v2.Encoding]:
    """Return the body as it goes over the wire: GZIP as it was sent, other compressions opened."""
    if not record.sys_flag & SYS_FLAG_COMPRESSED:
        return record.body, v2.IDENTITY
    if record.body.startswith(_GZIP_MAGIC):
        return record.body, v2.GZIP
    try:
        return record.decoded_body(size_max=_BODY_BYTES_MAX), v2.IDENTITY
    except ValueError:  # it is no worse for the consumer than for any other reader of the record
        return record.body, v2.IDENTITY
