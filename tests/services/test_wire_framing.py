"""Raw framing of answers is the protobuf of the contract, byte for byte in meaning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.v1 import common_pb2, reader_pb2, writer_pb2
from services import wire
from storage.message import PullStatus


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
    pull = reader_pb2.PullResponse.FromString(b"".join(wire.pull_response(head, slices)))
    assert (pull.records, pull.next_offset) == (b"".join(pieces), next_offset)
    query_head = reader_pb2.QueryByKeyResponse(next_page_token="t")
    query = reader_pb2.QueryByKeyResponse.FromString(wire.query_response(query_head, slices))
    assert (query.records, query.next_page_token) == (b"".join(pieces), "t")


@given(st.integers(0, 1 << 62))
def test_varints_are_protobufs(value: int) -> None:
    message = reader_pb2.PullResponse(next_offset=value).SerializeToString()
    assert message == (b"\x10" + wire.varint(value) if value else b"")


def test_every_pull_status_has_its_number() -> None:
    names = set(reader_pb2.PullStatus.keys()) - {"PULL_STATUS_UNSPECIFIED"}
    assert {status.name for status in PullStatus} == names == {s.name for s in wire.PULL_STATUS_OF}


def test_delays_are_read_from_a_message() -> None:
    read = wire.message_of(
        common_pb2.Message(topic="t", delay_level=3, deliver_at_ms=4, delay_ms=5)
    )
    assert (read.delay_level, read.deliver_at_ms, read.delay_ms) == (3, 4, 5)
