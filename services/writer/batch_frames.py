"""Batches on the wire: requests and frames read in place, and their answers written as bytes.

What our clients send and what the writer answers of one queue takes no protobuf object; anything
else that is valid is left to protobuf.
"""

from __future__ import annotations

from typing import Final

from penstock.v1 import common_pb2, writer_pb2
from penstock.varint import read_varint, varint
from services import wire
from storage.message import BatchResult, ProducerSequence, QueueRange

_VARINT: Final = 0
_FIXED64: Final = 1
_DELIMITED: Final = 2
_REQUEST: Final = writer_pb2.ProduceBatchRequest
_RECORDS_TAG: Final = _REQUEST.RECORDS_FIELD_NUMBER << 3 | _DELIMITED
_PRODUCER_TAG: Final = _REQUEST.PRODUCER_FIELD_NUMBER << 3 | _DELIMITED

# A request that says whose it is begins with: tag and size, tag of the id, the id, tag of the sequence, the sequence.
_ID_TAG: Final = writer_pb2.ProducerSequence.PRODUCER_ID_FIELD_NUMBER << 3 | _FIXED64
_SEQUENCE_TAG: Final = writer_pb2.ProducerSequence.SEQUENCE_FIELD_NUMBER << 3 | _VARINT
_ID_AT: Final = 3
_SEQUENCE_TAG_AT: Final = _ID_AT + 8
_SEQUENCE_AT: Final = _SEQUENCE_TAG_AT + 1
_SEQUENCE_LIMIT: Final = 1 << 32

_STORED_TAG: Final = writer_pb2.ProduceStreamResponse.STORED_FIELD_NUMBER << 3 | _DELIMITED
_RESPONSE: Final = writer_pb2.ProduceBatchResponse
_COMMIT_OFFSET_TAG: Final = _RESPONSE.COMMIT_OFFSET_FIELD_NUMBER << 3 | _VARINT
_END_TAG: Final = _RESPONSE.END_COMMIT_OFFSET_FIELD_NUMBER << 3 | _VARINT
_RECORD_COUNT_TAG: Final = _RESPONSE.RECORD_COUNT_FIELD_NUMBER << 3 | _VARINT
_TIMESTAMP_TAG: Final = _RESPONSE.STORE_TIMESTAMP_MS_FIELD_NUMBER << 3 | _VARINT
_RANGES_TAG: Final = _RESPONSE.RANGES_FIELD_NUMBER << 3 | _DELIMITED
_RANGE: Final = writer_pb2.QueueRange
_TOPIC_TAG: Final = _RANGE.TOPIC_FIELD_NUMBER << 3 | _DELIMITED
_QUEUE_ID_TAG: Final = _RANGE.QUEUE_ID_FIELD_NUMBER << 3 | _VARINT
_FIRST_TAG: Final = _RANGE.FIRST_QUEUE_OFFSET_FIELD_NUMBER << 3 | _VARINT
_COUNT_TAG: Final = _RANGE.COUNT_FIELD_NUMBER << 3 | _VARINT
RANGES_OF_A_PART: Final = 2_048  # made by one call


def batch_records(request: bytes) -> memoryview:
    """Return the records of a serialized ProduceBatchRequest as a view of it.

    Raises protobuf's DecodeError if the bytes are not such a request.
    """
    records = _records_from(request, 0)
    if records is None:
        return memoryview(_REQUEST.FromString(request).records)
    return records


def batch_request(request: bytes) -> tuple[memoryview, ProducerSequence | None]:
    """Return the records of a serialized ProduceBatchRequest as a view of it, and whose they are.

    Raises protobuf's DecodeError if the bytes are not such a request.
    """
    if not request or request[0] != _PRODUCER_TAG:
        records = _records_from(request, 0)
        if records is not None:
            return records, None
    elif (
        len(request) > _SEQUENCE_AT
        and request[_ID_AT - 1] == _ID_TAG
        and request[_SEQUENCE_TAG_AT] == _SEQUENCE_TAG
    ):
        sequence, at = _varint_at(request, _SEQUENCE_AT)
        if (
            at == 2 + request[1] and sequence < _SEQUENCE_LIMIT
        ):  # no age: it is sent for the first time
            records = _records_from(request, at)
            if records is not None:
                producer_id = int.from_bytes(request[_ID_AT:_SEQUENCE_TAG_AT], "little")
                return records, ProducerSequence(producer_id, sequence)
    parsed = _REQUEST.FromString(request)
    return memoryview(parsed.records), wire.producer_of(parsed)


def _records_from(request: bytes, begin: int) -> memoryview | None:
    """Return the records field that the bytes from ``begin`` on are, None if they are not just that."""
    size = len(request)
    if begin >= size:
        return memoryview(b"") if size == begin else None
    if request[begin] == _RECORDS_TAG:
        length, position = _varint_at(request, begin + 1)
        if position + length == size:
            return memoryview(request)[position:]
    return None


def _varint_at(request: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position after it, -1 if it is cut short."""
    try:
        return read_varint(request, at)
    except IndexError:
        return 0, -1


def batch_response(result: BatchResult) -> bytes:
    """Return a serialized ProduceBatchResponse: where a record batch was stored."""
    if len(result.ranges) == 1 and not result.repeated:
        return bytes(_of_one_queue(result))
    head = _RESPONSE(
        commit_offset=result.commit_offset,
        end_commit_offset=result.end_commit_offset,
        record_count=result.record_count,
        store_timestamp_ms=result.store_timestamp_ms,
    )
    tail = _RESPONSE(repeated=result.repeated)
    # Parts of a message that follow each other are one message; one of all ranges would hold the interpreter.
    parts = [
        _RESPONSE(
            ranges=map(_range, result.ranges[begin : begin + RANGES_OF_A_PART])
        ).SerializeToString()
        for begin in range(0, len(result.ranges), RANGES_OF_A_PART)
    ]
    return b"".join((head.SerializeToString(), *parts, tail.SerializeToString()))


def _range(stored: QueueRange) -> writer_pb2.QueueRange:
    return _RANGE(
        topic=stored.topic,
        queue_id=stored.queue_id,
        first_queue_offset=stored.first_queue_offset,
        count=stored.count,
    )


def stream_stored(result: BatchResult) -> bytes:
    """Return a serialized ProduceStreamResponse of a batch that was stored."""
    stored = batch_response(result)
    return b"".join((bytes((_STORED_TAG,)), varint(len(stored)), stored))


def _of_one_queue(result: BatchResult) -> bytearray:
    """Return a serialized ProduceBatchResponse of a batch that was stored in one queue."""
    commit_offset, end_offset, record_count, store_timestamp_ms, ranges, _ = result
    topic, queue_id, first_offset, count = ranges[0]
    name = topic.encode()
    of_queue = bytearray()
    if name:
        of_queue.append(_TOPIC_TAG)
        of_queue += varint(len(name)) + name
    _add_number(of_queue, _QUEUE_ID_TAG, queue_id)
    _add_number(of_queue, _FIRST_TAG, first_offset)
    _add_number(of_queue, _COUNT_TAG, count)
    out = bytearray()
    _add_number(out, _COMMIT_OFFSET_TAG, commit_offset)
    _add_number(out, _END_TAG, end_offset)
    _add_number(out, _RECORD_COUNT_TAG, record_count)
    _add_number(out, _TIMESTAMP_TAG, store_timestamp_ms)
    out.append(_RANGES_TAG)
    out += varint(len(of_queue)) + of_queue
    return out


def _add_number(out: bytearray, tag: int, value: int) -> None:
    """Add a field of a number that is not negative, left out where it is 0 as protobuf does."""
    if value:
        out.append(tag)
        out += varint(value)


def stream_failure(failure: common_pb2.Failure) -> bytes:
    """Return a serialized ProduceStreamResponse of a batch that was refused."""
    return writer_pb2.ProduceStreamResponse(failure=failure).SerializeToString()
