"""Calls that store messages."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import wire
from penstock.calls.call import Call
from penstock.requests import FRAME_OVERHEAD_MAX, REQUEST_BYTES_MAX, build, check_size
from penstock.retry import Repeat
from penstock.tracing import traced
from penstock.v1 import common_pb2, writer_pb2
from penstock.values import Message, QueueRange, Stored, StoredBatch


def messages(
    given: Sequence[Message], *, bytes_max: int = REQUEST_BYTES_MAX, token: str = ""
) -> Call[list[Stored]]:
    """Store messages, all or none, and once. InvalidArgument if they are more than a request may hold.

    ``token`` is that of an UnknownOutcome of the same messages.
    """
    request = writer_pb2.ProduceRequest(messages=[_message(each) for each in given])
    data = request.SerializeToString()
    check_size("messages", len(data), bytes_max)
    return Call(
        wire.PRODUCE,
        data,
        lambda response: [_stored(each, response.repeated) for each in response.results],
        repeat=Repeat.ONCE,
        with_producer=lambda field: data + field,
        token=token,
    )


def batch(
    records: bytes | bytearray | memoryview, *, bytes_max: int = REQUEST_BYTES_MAX, token: str = ""
) -> Call[StoredBatch]:
    """Store encoded records, as ``messages`` does messages."""
    check_size("records", len(records) + FRAME_OVERHEAD_MAX, bytes_max)
    return batch_of((records,), token=token)


def batch_of(
    records: Sequence[bytes | bytearray | memoryview], *, token: str = ""
) -> Call[StoredBatch]:
    """Store encoded records that fit into a request, given in parts."""
    return Call(
        wire.PRODUCE_BATCH,
        (b"", *records),
        stored_batch,
        repeat=Repeat.ONCE,
        with_producer=lambda field: (field, *records),
        token=token,
    )


def stored_batch(answer: writer_pb2.ProduceBatchResponse) -> StoredBatch:
    """Return where a record batch went."""
    return StoredBatch(
        commit_offset=answer.commit_offset,
        end_commit_offset=answer.end_commit_offset,
        record_count=answer.record_count,
        store_timestamp_ms=answer.store_timestamp_ms,
        ranges=tuple(
            QueueRange(
                topic=each.topic,
                queue_id=each.queue_id,
                first_queue_offset=each.first_queue_offset,
                count=each.count,
            )
            for each in answer.ranges
        ),
        repeated=answer.repeated,
    )


def _message(message: Message) -> common_pb2.Message:
    return build(
        common_pb2.Message,
        topic=message.topic,
        body=message.body,
        keys=message.keys,
        tag=message.tag,
        properties=dict(traced(message.properties)),
        queue_id=message.queue_id,
        unique_key=message.unique_key,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        delay_level=message.delay_level,
        deliver_at_ms=message.deliver_at_ms,
        delay_ms=message.delay_ms,
        sys_flag=message.sys_flag,
    )


def _stored(result: writer_pb2.ProduceResult, repeated: bool) -> Stored:
    return Stored(
        topic=result.topic,
        queue_id=result.queue_id,
        queue_offset=result.queue_offset,
        commit_offset=result.commit_offset,
        store_timestamp_ms=result.store_timestamp_ms,
        message_id=result.message_id,
        unique_key=result.unique_key,
        recall_handle=result.recall_handle,
        repeated=repeated,
    )
