"""Every column of every record is what a plain Python decode of the same bytes says, types and nulls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_records import encode_record
from record_examples import HOSTS, INT64S, TOPICS, property_blocks

from pipeline.source.decode import COLUMNS
from storage.arrow.record_columns import TAGS_NAME, RecordColumns
from storage.format.compression import compress
from storage.format.message_id import encode_message_id
from storage.format.properties import RESERVED
from storage.format.record import Record, decode_record
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    HAS_TAGS,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
)
from storage.view.log.walk import RecordRun, walk_range

INT32S = st.integers(-(1 << 31), (1 << 31) - 1)
TIMES = st.integers(-(1 << 52), (1 << 52) - 1)  # whose microseconds are a 64-bit number
TYPES = {
    "topic": pa.string(), "queueId": pa.int32(), "queueOffset": pa.int64(),
    "physicalOffset": pa.int64(), "size": pa.int32(), "msgId": pa.string(), "tags": pa.string(),
    "keys": pa.string(), "body": pa.binary(), "properties": pa.map_(pa.string(), pa.string()),
    "bornTimestamp": pa.timestamp("us", tz="UTC"), "storeTimestamp": pa.timestamp("us", tz="UTC"),
    "bornHost": pa.string(), "storeHost": pa.string(), "sysFlag": pa.int32(), "flag": pa.int32(),
    "bodyCrc": pa.int32(), "reconsumeTimes": pa.int32(), "preparedTransactionOffset": pa.int64(),
    "key": pa.binary(), "value": pa.binary(), "partition": pa.int32(), "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}  # fmt: skip


@st.composite
def records(draw: st.DrawFn, commit_offset: int) -> bytes:
    """A record of any shape that passes a store's checks, its body compressed or not."""
    packing = draw(st.sampled_from(("none", "none", "zlib", "lz4", "zstd")))
    body, sys_flag = compress(draw(st.binary(max_size=80)), packing)
    return encode_record(
        topic=draw(TOPICS),
        queue_id=draw(INT32S),
        body=body,
        properties_block=draw(property_blocks()).rstrip(b"\0"),
        flag=draw(INT32S),
        sys_flag=sys_flag | draw(st.sampled_from((0, 0x4, 0x8, 0xC))),
        queue_offset=draw(INT64S),
        commit_offset=commit_offset,
        born_timestamp_ms=draw(TIMES),
        born_host=draw(HOSTS),
        store_timestamp_ms=draw(TIMES),
        store_host=draw(HOSTS),
        reconsume_times=draw(INT32S),
        prepared_transaction_offset=draw(INT64S),
        append_property_crc=draw(st.booleans()),
    )


@st.composite
def logs(draw: st.DrawFn, commit_offset: int = 1 << 30) -> bytes:
    """Records back to back."""
    log = b""
    for _ in range(draw(st.integers(1, 6))):
        log += draw(records(commit_offset + len(log)))
    return log


def plain_headers(block: bytes) -> list[dict[str, Any]] | None:
    pairs: dict[str, bytes] = {}
    for segment in block.split(b"\x02"):
        name, separator, value = segment.partition(b"\x01")
        if name and separator and value:
            pairs[name.decode(errors="replace")] = value
    mine = [{"key": name, "value": value} for name, value in pairs.items() if name not in RESERVED]
    return mine or None


def plain(record: Record) -> dict[str, Any]:
    """What a row must say of a record, decoded field by field."""
    properties = record.properties
    keys = properties.get("KEYS")
    row = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.commit_offset,
        "size": record.total_size,
        "msgId": properties.get("UNIQ_KEY")
        or encode_message_id(record.store_host, record.commit_offset),
        "tags": properties.get("TAGS"),
        "keys": keys,
        "body": record.decoded_body(),
        "properties": list(properties.items()),
        "bornTimestamp": record.born_timestamp_ms * 1000,
        "storeTimestamp": record.store_timestamp_ms * 1000,
        "bornHost": record.born_host,
        "storeHost": record.store_host,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCrc": (record.body_crc ^ 0x80000000) - 0x80000000,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "headers": plain_headers(record.properties_block),
        "timestampType": 1,
    }
    row |= {
        "key": None if keys is None else keys.encode(),
        "value": row["body"],
        "partition": row["queueId"],
        "offset": row["queueOffset"],
        "timestamp": row["storeTimestamp"],
    }
    return row


def decoded(log: bytes) -> Iterator[Record]:
    position = 0
    while position < len(log):
        record = decode_record(log, position)
        yield record
        position += record.total_size


def columns_of(log: bytes, commit_offset: int) -> dict[str, Any]:
    """Every column of the records of a log, by name."""
    data = np.frombuffer(log, np.uint8)
    (step,) = walk_range(data, commit_offset, commit_offset, commit_offset + len(log))
    assert isinstance(step, RecordRun)
    batch = RecordColumns(data, step.rows, decompress_bodies=True)
    made = {name: make(batch) for name, make in COLUMNS.items()}
    assert not batch.broken
    assert made.pop("_corrupt").null_count == len(batch)
    return made


def values(array: Any) -> list[Any]:
    return (array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array).to_pylist()


@settings(max_examples=300, deadline=None)
@given(logs())
def test_columns_are_what_a_plain_decode_says(log: bytes) -> None:
    """Both record versions, both kinds of hosts, every compression, odd properties, nulls."""
    wanted = [plain(record) for record in decoded(log)]
    made = columns_of(log, 1 << 30)

    assert set(made) == set(TYPES)
    for name, array in made.items():
        array.validate(full=True)
        assert array.type == TYPES[name], name
        assert values(array) == [row[name] for row in wanted], name


@pytest.mark.parametrize(
    "block",
    [
        b"TAGS\x01a\x02TAGS\x01b\x02k\x01v\x02k\x01w\x02",
        b"TAGS\x01\xff\x02KEYS\x01\xc3\x28\x02k\x01\xe3\x81\x02",
        b"\xff\x01a\x02\xfe\x01b\x02",
        "ключ\x01значение\x02TAGS\x01😀\x02".encode(),
        b"k\x01v",
        b"k\x01\x02\x01v\x02\x02nothing\x02last\x01one",
    ],
    ids=["twice", "broken", "names that become one", "unicode", "no separator", "empty"],
)
def test_odd_properties(block: bytes) -> None:
    """A name that comes twice, and bytes that are no text."""
    log = encode_record(topic="t", queue_id=0, body=b"", properties_block=block)
    made = columns_of(log, 0)

    assert {name: values(array) for name, array in made.items()} == {
        name: [value] for name, value in plain(decode_record(log)).items()
    }


@pytest.mark.parametrize("column", [BODY_POSITION, PROPERTIES_POSITION])
@pytest.mark.parametrize("moved", [-(1 << 62), -1000, 1000, 1 << 62])
def test_kernels_touch_nothing_outside_the_data(column: int, moved: int) -> None:
    """Rows that point elsewhere are answered with WRONG, arrays that are too small with NO_ROOM."""
    from storage.kernels import arrow as kernels

    log = encode_record(topic="t", queue_id=0, body=b"body", properties_block=b"TAGS\x01a\x02")
    data = np.frombuffer(log, np.uint8)
    (step,) = walk_range(data, 0, 0, len(log))
    rows = step.rows.copy()
    offsets, present, out = (
        np.empty((3, 9), np.int32),
        np.zeros(1, np.uint8),
        np.empty(99, np.uint8),
    )

    def answers() -> dict[int, int]:
        return {
            BODY_POSITION: kernels.gather_column(
                data, rows, BODY_POSITION, BODY_LENGTH, out[:0], 0, 0, offsets[0], present, out
            ),
            PROPERTIES_POSITION: min(
                kernels.gather_column(
                    data,
                    rows,
                    PROPERTIES_POSITION,
                    PROPERTIES_LENGTH,
                    TAGS_NAME,
                    HAS_TAGS,
                    1,
                    offsets[0],
                    present,
                    out,
                ),
                kernels.gather_pairs(
                    data, rows, 0, offsets[0], offsets[1], out, offsets[2], out.copy()
                ),
            ),
        }

    assert min(answers().values()) > 0
    rows[0, column] += moved
    assert answers()[column] == kernels.WRONG
    rows[0, column] -= moved
    out = out[:0]
    assert list(answers().values()) == [kernels.NO_ROOM, kernels.NO_ROOM]
