"""Stored records as the messages that clients of RocketMQ receive."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from penstock.v1 import leases_pb2
from services.gateway.messages import names
from services.gateway.messages.times import fill
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from storage.errors import UnreadableBody
from storage.format import properties
from storage.format.compression import GZIP_MAGIC
from storage.format.message_id import encode_message_id
from storage.format.record import Record, decode_record
from storage.format.record_layout import SYS_FLAG_COMPRESSED


def answers_of(received: leases_pb2.ReceiveResponse, topic: v2.Resource) -> Iterator[bytes]:
    """Yield a serialized ReceiveMessageResponse for each record that the reader handed out."""
    handles = received.receipt_handles.decode()
    width = len(handles) // max(received.record_count, 1)
    records, position = received.records, 0
    for place, attempt in enumerate(received.attempts):
        record = decode_record(records, position)
        position += record.total_size
        handle = handles[place * width : (place + 1) * width]
        response = service_pb2.ReceiveMessageResponse()
        fill_message(response.message, record, topic, receipt_handle=handle, attempt=attempt)
        yield response.SerializeToString()


def fill_message(
    message: v2.Message, record: Record, resource: v2.Resource, *, receipt_handle: str, attempt: int
) -> None:
    """Write a record into an empty message of the topic that was asked for, whatever topic it lies in."""
    found = record.properties
    body, encoding = _body(record)
    message.topic.CopyFrom(resource)
    message.body = body
    system = message.system_properties
    if keys := found.get(properties.KEYS):
        system.keys.extend(properties.split_keys(keys))
    system.message_id = found.get(properties.UNIQ_KEY) or encode_message_id(
        record.store_host, record.commit_offset
    )
    digest = system.body_digest
    digest.type = v2.MD5
    digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding
    system.message_type = _type(found)
    system.born_host = found.get(names.BORN_HOST) or record.born_host
    system.store_host = record.store_host
    system.receipt_handle = receipt_handle
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = attempt
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
    for name, value in found.items():
        if name not in names.UNDELIVERED:
            message.user_properties[name] = value


def _type(found: Mapping[str, str]) -> v2.MessageType:
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
    """Return the body as it goes over the wire: GZIP as it was sent, other compressions opened.

    What cannot be opened is GZIP, as a proxy says of every compressed body: the client finds it corrupted.
    """
    if not record.sys_flag & SYS_FLAG_COMPRESSED:
        return record.body, v2.IDENTITY
    if record.body.startswith(GZIP_MAGIC):
        return record.body, v2.GZIP
    try:
        return record.decoded_body(), v2.IDENTITY
    except UnreadableBody:
        return record.body, v2.GZIP
