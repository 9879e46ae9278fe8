"""Records as a client sees them, against the store's own decoder."""

from __future__ import annotations

import copy
from itertools import product

import pytest
from plain_records import encode_record

from penstock.batch import RecordBatch
from penstock.record import Record, Records
from penstock.v1 import common_pb2
from storage.format.compression import (
    COMPRESSED,
    COMPRESSION_BITS,
    Compression,
    compress,
    decompress,
)
from storage.format.properties import encode_properties
from storage.format.record import decode_record

V4, V6 = "10.1.2.3:10911", "[2001:db8::7]:8081"
SAME = (
    "queue_id", "flag", "queue_offset", "commit_offset", "sys_flag", "born_timestamp_ms",
    "store_timestamp_ms", "born_host", "store_host", "reconsume_times",
    "prepared_transaction_offset", "topic", "body",
)  # fmt: skip


def encoded(number: int, *, born_host: str, store_host: str, topic: str = "orders") -> bytes:
    return encode_record(
        topic=topic,
        queue_id=3,
        body=b"body %d" % number,
        properties_block=encode_properties({"KEYS": "a b", "TAGS": "new", "UNIQ_KEY": "u"}),
        flag=7,
        queue_offset=number,
        commit_offset=1000 + number,
        born_timestamp_ms=1_700_000_000_001,
        born_host=born_host,
        store_timestamp_ms=1_700_000_000_002,
        store_host=store_host,
        reconsume_times=4,
        prepared_transaction_offset=5,
    )


@pytest.mark.parametrize("topic", ["orders", "long" * 40])
def test_every_field_is_the_store_s_for_hosts_of_both_families(topic: str) -> None:
    """Records of IPv4 and IPv6 hosts follow each other in one response."""
    stored = [
        encoded(number, born_host=born, store_host=store, topic=topic)
        for number, (born, store) in enumerate(product((V4, V6), repeat=2))
    ]
    records = Records(memoryview(b"".join(stored)), len(stored))
    for number, (record, data) in enumerate(zip(records, stored, strict=True)):
        for found in (record, records[number], records[number : number + 1][0]):
            expected = decode_record(data)
            for name in SAME:
                assert getattr(found, name) == getattr(expected, name), name
            assert found.size == expected.total_size
            assert found.raw == data
            assert (found.keys, found.tag, found.unique_key) == (("a", "b"), "new", "u")


def test_a_compressed_body_is_given_as_the_producer_knew_it() -> None:
    body = b"much of the same " * 100
    packed, sys_flag = compress(body, "zlib")
    data = encode_record(topic="orders", queue_id=0, body=packed, sys_flag=sys_flag)
    (record,) = Records(memoryview(data), 1)
    assert record.body == body


@pytest.mark.parametrize("kind", ["none", "zlib", "lz4", "zstd"])
def test_the_compression_flags_say_how_the_stored_body_is_compressed(kind: Compression) -> None:
    """Of a record that the service decoded too, which has the flags of what was stored."""
    body = b"much of the same " * 100
    packed, bits = compress(body, kind)
    data = encode_record(topic="orders", queue_id=0, body=packed, sys_flag=bits | 0x4)
    (stored,) = Records(memoryview(data), 1)
    decoded = Record.from_proto(common_pb2.Record(sys_flag=bits | 0x4, body=body))
    unreadable = Record.from_proto(
        common_pb2.Record(sys_flag=bits | 0x4, body=packed, body_problem="too long")
    )
    assert (stored.compression_flags, decoded.compression_flags) == (bits, 0)
    assert unreadable.compression_flags == bits
    for record in (stored, decoded, unreadable):
        assert decompress(record.stored_body, record.compression_flags) == body


def test_a_code_of_a_body_that_is_not_compressed_says_nothing() -> None:
    data = encode_record(
        topic="orders", queue_id=0, body=b"x", sys_flag=COMPRESSION_BITS & ~COMPRESSED
    )
    (record,) = Records(memoryview(data), 1)
    assert record.compression_flags == 0


def test_a_record_is_itself_and_no_other_of_the_same_bytes() -> None:
    batch = RecordBatch("orders")
    batch.add(b"a pen", keys=["k"], tag="new")
    batch.add(b"ink")
    records = Records(memoryview(batch.records()), len(batch))
    first, second = records
    assert (first == first, first == records[0], first in {first, second}) == (True, False, True)
    assert first.body is first.body
    assert repr(second) == "<Record orders queue 0 offset 0, 3 bytes>"
    assert copy.copy(first).body == b"a pen"
    assert [each.body for each in records[0:2]] == [b"a pen", b"ink"]
    assert (len(records), records[-1].body) == (2, b"ink")
