"""Batches are read and answered as protobuf reads and writes the contract, byte for byte in meaning."""

from __future__ import annotations

import pytest
from frame_outcomes import answer_with
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.sequences import RequestToken
from penstock.v1 import common_pb2, reader_pb2, writer_pb2
from services import wire
from services.writer import batch_frames
from storage.message import BatchResult, ProducerSequence, PullStatus, QueueRange

IDS = st.integers(0, (1 << 64) - 1)


SEQUENCES = st.one_of(st.integers(0, 300), st.integers(0, (1 << 32) - 1))


AGES = st.one_of(st.just(0), st.integers(0, (1 << 64) - 1))


NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 62) - 1))


COUNTS = st.integers(0, (1 << 31) - 1)


@given(st.binary(max_size=40_000))
def test_a_batch_request_is_viewed_without_a_copy(records: bytes) -> None:
    request = writer_pb2.ProduceBatchRequest(records=records).SerializeToString()
    view = batch_frames.batch_records(request)
    assert view == records
    assert not records or view.obj is request


@given(st.binary(max_size=64))
def test_any_bytes_are_a_request_or_a_decode_error_as_for_protobuf(data: bytes) -> None:
    try:
        expected = writer_pb2.ProduceBatchRequest.FromString(data).records
    except DecodeError:
        with pytest.raises(DecodeError):
            batch_frames.batch_records(data)
    else:
        assert batch_frames.batch_records(data) == expected


def producer_in(request: bytes) -> ProducerSequence | None:
    parsed = writer_pb2.ProduceBatchRequest.FromString(request)
    if not parsed.HasField("producer"):
        return None
    whose = parsed.producer
    return ProducerSequence(whose.producer_id, whose.sequence, whose.age_ms)


@given(IDS, SEQUENCES, AGES, st.binary(max_size=300), st.booleans())
def test_whose_a_request_is_is_read_from_either_end_of_it(
    producer_id: int, sequence: int, age_ms: int, records: bytes, comes_last: bool
) -> None:
    whose = writer_pb2.ProducerSequence(producer_id=producer_id, sequence=sequence, age_ms=age_ms)
    parts = [
        writer_pb2.ProduceBatchRequest(producer=whose).SerializeToString(),
        writer_pb2.ProduceBatchRequest(records=records).SerializeToString(),
    ]
    request = b"".join(reversed(parts) if comes_last else parts)
    read, producer = batch_frames.batch_request(request)
    assert (read, producer) == (records, (producer_id, sequence, age_ms))


@given(st.integers(1, (1 << 63) - 1), st.integers(1, (1 << 32) - 1), st.binary(min_size=1))
def test_a_request_of_our_client_is_viewed_without_a_copy(
    producer_id: int, sequence: int, records: bytes
) -> None:
    whose = RequestToken(producer_id, sequence).field(0)
    request = whose + writer_pb2.ProduceBatchRequest(records=records).SerializeToString()
    read, producer = batch_frames.batch_request(request)
    assert (read, producer) == (records, (producer_id, sequence, 0))
    assert read.obj is request


ID_AND_SEQUENCE = b"\x09" + b"\x07" * 8 + b"\x10"


@given(st.binary(max_size=8), st.integers(0, 24), st.binary(max_size=4))
@example(b"\x81\x00", 12, b"")  # longer than it need be
@example(b"\x81\x01\x05", 12, b"")
@example(b"\x01\x01", 12, b"")
@example(b"\xff\xff\xff\xff\x7f", 15, b"\x0a\x00")  # above 32 bits
@example(b"\xff\xff\xff\xff\x0f", 15, b"\x0a\x01x")
@example(b"\x80\x80", 12, b"\x0a\x00")
@example(b"\x05\x0a", 11, b"")
@example(b"\x05\x18\x09", 13, b"\x0a\x00")
@example(b"\x05", 11, b"\x0a\x01x\x0a\x01y")
@example(b"\x05", 11, b"\x12\x00")
def test_any_bytes_are_of_whom_they_are_for_protobuf(
    sequence: bytes, size: int, rest: bytes
) -> None:
    request = b"\x12" + bytes([size]) + ID_AND_SEQUENCE + sequence + rest
    try:
        expected = writer_pb2.ProduceBatchRequest.FromString(request).records
    except DecodeError:
        with pytest.raises(DecodeError):
            batch_frames.batch_request(request)
    else:
        read, producer = batch_frames.batch_request(request)
        assert (read, producer) == (expected, producer_in(request))


RANGES = st.builds(QueueRange, st.text(max_size=200), COUNTS, NUMBERS, COUNTS)


@given(
    NUMBERS, NUMBERS, COUNTS, NUMBERS, st.lists(RANGES, max_size=3), st.booleans()
)  # fmt: skip
def test_an_answer_is_what_protobuf_writes(
    begin: int, end: int, count: int, stored_ms: int, ranges: list[QueueRange], repeated: bool
) -> None:
    result = BatchResult(begin, end, count, stored_ms, tuple(ranges), repeated)
    answer = batch_frames.stream_stored(result)
    stored = writer_pb2.ProduceBatchResponse.FromString(batch_frames.batch_response(result))
    assert answer == answer_with(stored=stored).SerializeToString()
    assert [(r.topic, r.queue_id, r.first_queue_offset, r.count) for r in stored.ranges] == ranges
    assert (
        stored.commit_offset, stored.end_commit_offset, stored.record_count,
        stored.store_timestamp_ms, stored.repeated,
    ) == (begin, end, count, stored_ms, repeated)  # fmt: skip


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(0, 9))
def test_fields_are_counted_without_parsing_them(bodies: list[bytes], most: int) -> None:
    messages = [common_pb2.Message(body=body) for body in bodies]
    request = writer_pb2.ProduceRequest(messages=messages).SerializeToString()
    others = b"\x50\x80\x01" + b"\x59" + bytes(8) + b"\x5d" + bytes(4) + b"\x82\x01\x01x"
    assert wire.count_fields(others + request, most) == min(4 + len(bodies), most)
    assert wire.count_fields(request + b"\x0b", 20) == 20  # a group may hold anything


@given(st.binary(max_size=64))
def test_any_bytes_are_counted(data: bytes) -> None:
    assert 0 <= wire.count_fields(data, 5) <= 5


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(0, 1 << 60))
def test_answers_with_slices_are_valid_protobuf(pieces: list[bytes], next_offset: int) -> None:
    slices = [memoryview(piece) for piece in pieces]
    head = reader_pb2.PullResponse(status=reader_pb2.FOUND, next_offset=next_offset)
    pull = reader_pb2.PullResponse.FromString(b"".join(wire.with_records(head, slices)))
    assert (pull.records, pull.next_offset) == (b"".join(pieces), next_offset)
    query_head = reader_pb2.QueryByKeyResponse(next_page_token="t")
    query = reader_pb2.QueryByKeyResponse.FromString(
        b"".join(wire.with_records(query_head, slices))
    )
    assert (query.records, query.next_page_token) == (b"".join(pieces), "t")


def test_every_pull_status_has_its_number() -> None:
    names = set(reader_pb2.PullStatus.keys()) - {"PULL_STATUS_UNSPECIFIED"}
    assert {status.name for status in PullStatus} == names == {s.name for s in wire.PULL_STATUS_OF}
