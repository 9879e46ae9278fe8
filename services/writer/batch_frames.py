"""Batches on the wire: requests and frames whose records are read in place, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.framing import split_records, varint
from penstock.v1 import common_pb2, writer_pb2
from services import wire
from storage.message import BatchResult, ProducerSequence, QueueRange

_DELIMITED: Final = 2
_REQUEST: Final = writer_pb2.ProduceBatchRequest
_RESPONSE: Final = writer_pb2.ProduceBatchResponse
_STORED_TAG: Final = bytes([writer_pb2.FrameOutcome.STORED_FIELD_NUMBER << 3 | _DELIMITED])
_OUTCOME_TAG: Final = bytes(
    [writer_pb2.ProduceStreamResponse.OUTCOMES_FIELD_NUMBER << 3 | _DELIMITED]
)


def batch_records(request: bytes) -> memoryview:
    """Return the records of a serialized ProduceBatchRequest as a view of it.

    Raises protobuf's DecodeError if the bytes are not such a request.
    """
    return split_records(request, _REQUEST, _REQUEST.RECORDS_FIELD_NUMBER).records


def batch_request(request: bytes) -> tuple[memoryview, ProducerSequence | None]:
    """Return the records of a serialized ProduceBatchRequest as a view of it, and whose they are.

    Raises protobuf's DecodeError if the bytes are not such a request.
    """
    split = split_records(request, _REQUEST, _REQUEST.RECORDS_FIELD_NUMBER)
    return split.records, wire.producer_of(split.front)


def batch_response(result: BatchResult) -> bytes:
    """Return a serialized ProduceBatchResponse: where a record batch was stored."""
    response = _RESPONSE()
    response.commit_offset = result.commit_offset
    response.end_commit_offset = result.end_commit_offset
    response.record_count = result.record_count
    response.store_timestamp_ms = result.store_timestamp_ms
    response.repeated = result.repeated
    if len(result.ranges) > wire.SLICE_ITEMS:
        return wire.sliced(response, result.ranges, lambda ranges: _fill(_RESPONSE(), ranges))
    return _fill(response, result.ranges).SerializeToString()


def _fill(
    response: writer_pb2.ProduceBatchResponse, ranges: Sequence[QueueRange]
) -> writer_pb2.ProduceBatchResponse:
    for each in ranges:
        stored = response.ranges.add()
        stored.topic, stored.queue_id, stored.first_queue_offset, stored.count = each
    return response


def stream_stored(result: BatchResult) -> bytes:
    """Return a serialized ProduceStreamResponse of a batch that was stored."""
    stored = batch_response(result)
    head = _STORED_TAG + varint(len(stored))
    return b"".join((_OUTCOME_TAG, varint(len(head) + len(stored)), head, stored))


def stream_failure(failure: common_pb2.Failure) -> bytes:
    """Return a serialized ProduceStreamResponse of a batch that was refused."""
    outcome = writer_pb2.FrameOutcome(failure=failure)
    return writer_pb2.ProduceStreamResponse(outcomes=[outcome]).SerializeToString()
