"""Property blocks of any shape: the walk by masks finds what splitting the block finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_records import check_record, encode_record
from record_examples import as_array
from steps_to_try import examples_to_try

from storage.format.properties import DELAYING, STORE_ONLY, decode_properties
from storage.format.property_crc import has_property_crc
from storage.format.record import (
    decode_record,
    encode_for_batch,
)
from storage.kernels import client_records, columns, scan
from storage.kernels.columns import Stop, new_rows

PIECES = st.sampled_from(
    (
        b"\x01", b"\x02", b"\x01", b"\x02", b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"DELAY\x01",
        b"INNER_MULTI_DISPATCH\x01", b"PGROUP\x01", b"TIMER_DELAY_SEC\x01", b"TIMER_DELIVER_MS\x01", b"TIMER_DEADLINE\x01",
        b"TIMER_DEPTH_SEC\x01", b"TIMER_DELIVERY_M\x01", b"__RMQ.TRANSIENT.a\x01", b"0", b"3", b"|",
        b"\x00", b"__CRC33#\x0101234\x0d6789\x02", b"__CRC32#\x010123456789\x02",
        b"__CRC32#\x01012\x0245\x01789\x02", b"v" * 7, b"v" * 29, b"v" * 61, b"v" * 64,
        b"v" * 130, "\u65e5\U0001f600".encode(), b"\xff",
    )
)  # fmt: skip
BLOCKS = st.lists(PIECES, max_size=24).map(b"".join)
TAMES = st.lists(
    st.sampled_from((b"a\x01b\x02", b"KEYS\x01" + b"k" * 50 + b"\x02", b"TAGS\x01t\x02",
                     b"DELAY\x0100\x02", b"TIMER_DELAY_MS\x0112\x02", b"UNIQ_KEY\x01" + b"u" * 32 + b"\x02", b"n\x01\x01\x01\x02")),
    max_size=12,
).map(b"".join)  # fmt: skip


def found_in(block: bytes) -> dict[str, object]:
    """What the columns of a block's row should say."""
    properties = decode_properties(block)
    return {
        "tags": "TAGS" in properties,
        "keys": properties.get("KEYS", ""),
        "unique": properties.get("UNIQ_KEY", ""),
        "delay": "DELAY" in properties,
        "timer": not properties.keys().isdisjoint(DELAYING - {"DELAY"}),
        "light": "INNER_MULTI_DISPATCH" in properties,
        "crc": has_property_crc(block),
    }


def told_by(data: bytes, row: list[int]) -> dict[str, object]:
    """The same as the row has it."""

    def text(position: int, length: int) -> str:
        return data[row[position] : row[position] + row[length]].decode(errors="replace")

    features = row[columns.FEATURES]
    return {
        "tags": bool(features & columns.HAS_TAGS),
        "keys": text(columns.KEYS_POSITION, columns.KEYS_LENGTH),
        "unique": text(columns.UNIQ_KEY_POSITION, columns.UNIQ_KEY_LENGTH),
        "delay": bool(features & columns.HAS_DELAY),
        "timer": bool(features & columns.HAS_TIMER),
        "light": bool(features & columns.HAS_MULTI_DISPATCH),
        "crc": bool(features & columns.HAS_PROPERTY_CRC),
    }


def stop_of(data: bytes) -> Stop:
    """The stop of a client's record by its property block, found by splitting it."""
    block = decode_record(data).properties_block
    trailed = has_property_crc(block)
    if trailed:
        block = block[:-20]
    try:
        block.decode()
    except UnicodeDecodeError:
        return Stop.PROPERTIES
    pairs = block.removesuffix(b"\x02").split(b"\x02") if block else []
    for name, separator, value in (pair.partition(b"\x01") for pair in pairs):
        if not (name and separator and value):
            return Stop.PROPERTIES
        if name.decode() in STORE_ONLY - DELAYING or name.startswith(b"__RMQ.TRANSIENT."):
            return Stop.RESERVED_PROPERTY
        if name.decode() in DELAYING and not (value.isdigit() and len(value) <= 15):
            return Stop.DELAY
        if name == b"TAGS" and b"|" in value:
            return Stop.TAG
    ends_well = not block or block.endswith(b"\x02") if trailed else check_record(data) is Stop.END
    return Stop.END if ends_well else Stop.PROPERTIES


@given(BLOCKS)
@settings(max_examples=examples_to_try(500, 3), deadline=None)
def test_a_row_has_what_a_block_of_any_shape_holds(block: bytes) -> None:
    data = encode_record(topic="t", queue_id=0, body=b"b", properties_block=block)
    rows = new_rows(1)

    assert scan.scan_records(as_array(data), 0, len(data), 0, 0, rows) == (1, len(data), Stop.END)

    assert told_by(data, rows[0].tolist()) == found_in(block)


@given(st.one_of(BLOCKS, TAMES, st.tuples(TAMES, BLOCKS).map(b"".join)), st.booleans())
@settings(max_examples=examples_to_try(1_000, 4), deadline=None)
def test_a_clients_block_of_any_shape_is_judged_and_read(block: bytes, reserve: bool) -> None:
    data = encode_for_batch("t", 0, b"b", block, 0, 0, 1_700_000_000_000, "1.2.3.4:5", reserve)
    whole = decode_record(data).properties_block
    rows = np.zeros((1, columns.COLUMN_COUNT), np.int64)

    count, _, stop = client_records.validate_batch(as_array(data), rows)

    assert Stop(stop) is stop_of(data)
    assert count == (stop == Stop.END)
    if stop == Stop.END:
        assert told_by(data, rows[0].tolist()) == found_in(whole)
