"""Bytes of the contract that are not worth a protobuf object, and values to and from protobuf.

The records of an answer are its last field, so they are framed here around views of the bytes:
still valid protobuf, without a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import Message as ProtobufMessage

from penstock.framing import read_varint, varint
from penstock.v1 import common_pb2, leases_pb2, reader_pb2, writer_pb2
from services.rpc.status import code_of, reason_of, retry_delay_ms
from storage.errors import InvalidBatch, StoreError
from storage.format.recall_handle import RecallHandle
from storage.message import (
    NO_PROPERTIES,
    Damage,
    Message,
    ProducerSequence,
    PullStatus,
    PutResult,
)
from storage.tables.topics import TopicConfig

_Item = TypeVar("_Item")
_Kind = TypeVar("_Kind", bound=ProtobufMessage)
SLICE_ITEMS: Final = 512
BROKER: Final = "penstock"  # in recall handles of ours
_VARINT: Final = 0
_LENGTH_DELIMITED: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}
_RECORDS_TAG: Final[dict[type[ProtobufMessage], bytes]] = {
    kind: bytes([kind.RECORDS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
    for kind in (reader_pb2.PullResponse, reader_pb2.QueryByKeyResponse, leases_pb2.ReceiveResponse)
}
Parts = tuple[bytes | memoryview, ...]  # of one serialized message, in order

PULL_STATUS_OF: Final[dict[PullStatus, Any]] = {
    status: reader_pb2.PullStatus.Value(status.name) for status in PullStatus
}


def sliced(
    head: ProtobufMessage,
    items: Sequence[_Item],
    message_of: Callable[[Sequence[_Item]], ProtobufMessage],
) -> bytes:
    """Return a message with very many items, which are made into messages some at a time.

    Messages after each other are one that has the items of all of them. One call for all would keep every
    other thread waiting for as long as it takes.
    """
    slices = (items[begin : begin + SLICE_ITEMS] for begin in range(0, len(items), SLICE_ITEMS))
    parts = (message_of(some).SerializeToString() for some in slices)
    return b"".join((head.SerializeToString(), *parts))


def message_from(kind: type[_Kind], value: Any, /, **given: Any) -> _Kind:
    """Return a message with a value's fields of the same names; ``given`` are those that differ."""
    names = kind.DESCRIPTOR.fields_by_name.keys() - given.keys()
    return kind(**{name: getattr(value, name) for name in names}, **given)


def producer_of(
    request: writer_pb2.ProduceRequest | writer_pb2.ProduceBatchRequest,
) -> ProducerSequence | None:
    """Return whose request it is, None if it does not say."""
    if not request.HasField("producer"):
        return None
    producer = request.producer
    return ProducerSequence(producer.producer_id, producer.sequence, producer.age_ms)


def count_fields(message: bytes, most: int) -> int:
    """Return how many fields a serialized message has, at the top; ``most`` if there may be more.

    Parsing makes an object of each, so this is asked before. The parser refuses what is malformed.
    """
    count = at = 0
    try:
        while at < len(message) and count < most:
            kind = message[at] & 7
            at = read_varint(message, at)[1]
            if kind in (_VARINT, _LENGTH_DELIMITED):
                value, at = read_varint(message, at)
                at += value if kind == _LENGTH_DELIMITED else 0
            elif kind in _FIXED_SIZES:
                at += _FIXED_SIZES[kind]
            else:  # a group, which no client sends
                return most
            count += 1
    except IndexError:
        pass
    return count


def with_records(head: ProtobufMessage, slices: Sequence[memoryview]) -> Parts:
    """Return a serialized answer with ``slices`` as its records, in parts to be joined."""
    length = sum(map(len, slices))
    if length == 0:
        return (head.SerializeToString(),)
    return (head.SerializeToString(), _RECORDS_TAG[type(head)], varint(length), *slices)


def message_of(message: common_pb2.Message) -> Message:
    """Return the engine's message."""
    return Message(
        message.topic,
        message.body,
        tuple(message.keys),
        message.tag,
        dict(message.properties) if message.properties else NO_PROPERTIES,
        message.queue_id if message.HasField("queue_id") else None,
        message.unique_key,
        message.flag,
        message.born_timestamp_ms,
        message.delay_level,
        message.deliver_at_ms,
        message.delay_ms,
        message.sys_flag,
    )


def put_result(result: PutResult) -> writer_pb2.ProduceResult:
    """Return where one message was stored."""
    return writer_pb2.ProduceResult(
        topic=result.topic,
        queue_id=result.queue_id,
        queue_offset=result.queue_offset,
        commit_offset=result.commit_offset,
        message_id=result.message_id,
        unique_key=result.unique_key,
        store_timestamp_ms=result.store_timestamp_ms,
        recall_handle=recall_handle(result),
    )


def recall_handle(result: PutResult) -> str:
    """Return by what a message can be recalled; empty if it cannot be."""
    if not result.recall_ms:
        return ""
    return RecallHandle(result.topic, BROKER, result.recall_ms, result.unique_key).encode()


def failure_of(error: StoreError) -> common_pb2.Failure:
    """Return an error as an outcome of one frame of a stream."""
    return common_pb2.Failure(
        code=code_of(error).value[0],
        message=str(error),
        retry_delay_ms=retry_delay_ms(error),
        record_index=error.record_index if isinstance(error, InvalidBatch) else -1,
        reason=reason_of(error),
    )


def damaged_record(damage: Damage) -> common_pb2.DamagedRecord:
    """Return a record that cannot be served."""
    return message_from(common_pb2.DamagedRecord, damage)


def topic_message(topic: TopicConfig) -> common_pb2.Topic:
    """Return a topic as the contract has it."""
    return message_from(common_pb2.Topic, topic, attributes=dict(topic.attributes))
