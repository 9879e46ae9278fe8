"""A record encoded for a batch and completed is the record encoded whole."""

from __future__ import annotations

import pytest

from storage.format.hosts import encode_host
from storage.format.record import complete_record, encode_for_batch, encode_record

BLOCK = b"KEYS\x01k\x02"


@pytest.mark.parametrize("property_crc", [True, False])
@pytest.mark.parametrize("topic", ["t", "x" * 127, "y" * 128])
@pytest.mark.parametrize("born_host", ["10.0.0.7:5", "[::1]:9"])
def test_completing_a_batched_record_gives_the_stored_one(born_host, topic, property_crc):
    record = bytearray(
        encode_for_batch(topic, 3, b"body", BLOCK, 7, 0, 99, born_host, property_crc)
    )
    complete_record(
        record,
        queue_offset=11,
        commit_offset=1 << 40,
        store_timestamp_ms=1_700_000_000_000,
        store_host=encode_host("10.1.2.3:10911"),
        property_crc=property_crc,
    )
    assert record == encode_record(
        topic=topic,
        queue_id=3,
        body=b"body",
        properties_block=BLOCK,
        flag=7,
        queue_offset=11,
        commit_offset=1 << 40,
        born_timestamp_ms=99,
        born_host=born_host,
        store_timestamp_ms=1_700_000_000_000,
        store_host="10.1.2.3:10911",
        append_property_crc=property_crc,
    )
