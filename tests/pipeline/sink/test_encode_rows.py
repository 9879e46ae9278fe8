"""Arrow batches become the records that the plain encoder makes, whatever slice or nulls they have."""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import InvalidColumn
from storage.arrow.message_rows import ArrowRows, Encoder, MessageColumns, chunks
from storage.format.hosts import ANY_HOST
from storage.format.properties import RESERVED, TRANSIENT_PREFIX, encode_properties
from storage.format.record import decode_record, encode_for_batch
from storage.format.stage import stage_prefix, unique_key
from storage.kernels.encode import QUEUE_RUN

COLUMNS = MessageColumns(
    body="value", keys="key", one_key=True, tags="tags", headers="headers",
    properties="properties", topic="topic", queue_id="queueId",
)  # fmt: skip
SCHEMA = pa.schema(
    [
        ("value", pa.binary()), ("key", pa.string()), ("tags", pa.string()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("topic", pa.string()), ("queueId", pa.int32()),
    ]
)  # fmt: skip
QUEUES = {"t": 3, "topic-of-more-letters": 7, "%RETRY%" + "g" * 150: 1}
PREFIX = stage_prefix("app", 0, "a")
BORN_MS = 1_700_000_000_000

text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
name = text.filter(lambda value: value and value.isascii() and value[0] == "x") | st.just("größe")
word = text.map(lambda value: "".join(value.split())).filter(lambda value: "|" not in value)
row = st.fixed_dictionaries(
    {
        "value": st.binary(max_size=300),
        "key": st.none() | word,
        "tags": st.none() | word,
        "headers": st.none()
        | st.lists(
            st.fixed_dictionaries({"key": name, "value": st.none() | text.map(str.encode)}),
            max_size=3,
        ),
        "properties": st.none() | st.lists(st.tuples(name, st.none() | text), max_size=3),
        "topic": st.sampled_from(sorted(QUEUES)),
        "queueId": st.none() | st.just(0),
    }
)


def plain(line: dict[str, Any], number: int) -> bytes:
    """One row as a record, made by the format's own functions."""
    key, topic = line["key"] or "", line["topic"]
    block = encode_properties(
        {"UNIQ_KEY": unique_key(PREFIX, number), "KEYS": key, "TAGS": line["tags"] or ""}
    )
    for pairs in (
        [(each["key"], (each["value"] or b"").decode()) for each in line["headers"] or ()],
        [(each[0], each[1] or "") for each in line["properties"] or ()],
    ):
        for pair in pairs:
            block += encode_properties(dict([pair]))
    if line["queueId"] is not None:
        queue_id = line["queueId"]
    elif key:
        queue_id = (crc32(key.encode()) & 0x7FFFFFFF) % QUEUES[topic]
    else:
        queue_id = number // QUEUE_RUN % QUEUES[topic]
    return encode_for_batch(topic, queue_id, line["value"], block, 0, 0, BORN_MS, "0.0.0.0:0")


def encoder(columns: MessageColumns = COLUMNS, topic: str | None = None) -> Encoder:
    return Encoder(columns, topic, QUEUES.__getitem__, refuse=InvalidColumn, of_what=" of its task")


@given(st.lists(row, max_size=20), st.integers(0, 5), st.integers(300, 3_000))
@settings(max_examples=60, deadline=None)
def test_rows_are_encoded_as_one_by_one(
    lines: list[dict[str, Any]], first: int, chunk_size: int
) -> None:
    whole = pa.RecordBatch.from_pylist(lines, SCHEMA)
    parts, number = [], 0
    for begin, end in ((first, (first + len(lines)) // 2), ((first + len(lines)) // 2, len(lines))):
        batch = whole.slice(begin, max(0, end - begin))
        if batch.num_rows:
            parts.append(ArrowRows(encoder(), batch, first_number=number))
            number += batch.num_rows
    made = [bytes(chunk) for chunk in chunks(parts, PREFIX, BORN_MS, chunk_size=chunk_size)]
    wanted = [plain(line, number) for number, line in enumerate(lines[first:])]
    if (first + len(lines)) // 2 < first:
        return
    assert b"".join(made) == b"".join(wanted)
    for chunk in made:
        count, position = 0, 0
        while position < len(chunk):
            position += decode_record(chunk, position).total_size
            count += 1
        assert len(chunk) <= chunk_size or count == 1


DELAYED: Final = MessageColumns(
    body="value", keys=None, one_key=False, tags=None, headers=None, properties=None, topic=None,
    queue_id=None, delay_ms="delay", deliver_at_ms="at",
)  # fmt: skip
DELAYED_SCHEMA: Final = pa.schema(
    [("value", pa.binary()), ("delay", pa.int64()), ("at", pa.int64())]
)
LATEST: Final = 10**15 - 1


@given(st.lists(st.none() | st.integers(-LATEST, LATEST), max_size=20), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_delays_are_properties_of_their_rows(times: list[int | None], first: int) -> None:
    """A time above 0 is a delay, one below its negative as a time of delivery."""
    lines = [
        {"value": b"", "delay": max(0, time) if time else time, "at": -min(0, time or 0)}
        for time in times
    ]
    batch = pa.RecordBatch.from_pylist(lines, DELAYED_SCHEMA).slice(first)
    rows = ArrowRows(encoder(DELAYED, "t"), batch, first_number=0)
    made = b"".join(map(bytes, chunks([rows], PREFIX, BORN_MS)))
    wanted = b""
    for number, time in enumerate(times[first:]):
        names = {"UNIQ_KEY": unique_key(PREFIX, number)}
        if time:
            names["TIMER_DELAY_MS" if time > 0 else "TIMER_DELIVER_MS"] = str(abs(time))
        wanted += encode_for_batch("t", 0, b"", encode_properties(names), 0, 0, BORN_MS, ANY_HOST)
    assert made == wanted


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"delay": -1}, "column 'delay': in row 8 of its task is -1, which is not a number of"),
        ({"at": LATEST + 1}, "column 'at': in row 8 of its task is 1000000000000000, which"),
        ({"delay": 1, "at": 1}, "column 'delay': in row 8 .* beside at; give one of them"),
    ],
)
def test_a_delay_that_can_be_none_is_refused_with_its_row(
    line: dict[str, int], message: str
) -> None:
    lines = [{"value": b""}, {"value": b"", **line}]
    batch = pa.RecordBatch.from_pylist(lines, DELAYED_SCHEMA)
    rows = ArrowRows(encoder(DELAYED, "t"), batch, first_number=7)
    with pytest.raises(InvalidColumn, match=message):
        list(chunks([rows], PREFIX, BORN_MS))


def made_with(name: str) -> bytes:
    lines = [{"value": b"", "topic": "t", "properties": [(name, "x")]}]
    rows = ArrowRows(encoder(), pa.RecordBatch.from_pylist(lines, SCHEMA), first_number=0)
    return b"".join(map(bytes, chunks([rows], PREFIX, BORN_MS)))


def test_every_name_of_the_store_is_refused_and_none_that_resembles_one() -> None:
    for name in (*RESERVED, TRANSIENT_PREFIX, f"{TRANSIENT_PREFIX}x"):
        with pytest.raises(InvalidColumn, match="name of the store"):
            made_with(name)
    for name in sorted(RESERVED):
        for like in (name[:-1], f"{name}_", f"{name[:-1]}~", f"~{name[1:]}"):
            if like not in RESERVED:
                assert f"{like}\x01x\x02".encode() in made_with(like)
    assert made_with(TRANSIENT_PREFIX[:-1])


def test_a_long_record_makes_no_other_chunk_longer() -> None:
    lines = [{"value": bytes(size), "topic": "t"} for size in (10, 5_000, *[10] * 50)]
    rows = ArrowRows(encoder(), pa.RecordBatch.from_pylist(lines, SCHEMA), first_number=0)
    sizes = [len(chunk) for chunk in chunks([rows], PREFIX, BORN_MS, chunk_size=1_000)]
    assert sizes[1] > 5_000
    assert max(sizes[:1] + sizes[2:]) <= 1_000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"value": None}, "column 'value': in row 7 of its task is null"),
        ({"topic": None}, "column 'topic': in row 7 of its task is null"),
        ({"topic": "a b"}, "column 'topic': has the value 'a b'"),
        ({"key": "a b"}, "column 'key': .* contains a space"),
        ({"key": "a\x01"}, "column 'key': .* not text"),
        ({"tags": "a|b"}, r"column 'tags': .* contains '\|'"),
        ({"tags": " a"}, "column 'tags': .* white space"),
        ({"tags": "a\x02"}, "column 'tags': .* U"),
        ({"headers": [{"key": "", "value": b"x"}]}, "column 'headers': .* empty name"),
        ({"headers": [{"key": "KEYS", "value": b"x"}]}, "column 'headers': .* name of the store"),
        ({"headers": [{"key": "a", "value": b"\xff"}]}, "column 'headers': .* value that is not"),
        ({"properties": [("UNIQ_KEY", "x")]}, "column 'properties': .* name of the store"),
        ({"properties": [("a\x01", "x")]}, "column 'properties': .* a name with"),
        ({"properties": [("a", "x" * 40_000)]}, "column 'headers': .* the most is 32767"),
        ({"queueId": 3}, "column 'queueId': in row 7 of its task is 3, which the topic"),
        ({"queueId": -1}, "column 'queueId': .* is -1"),
    ],
)
def test_a_row_that_can_be_no_message_is_named(line: dict[str, Any], message: str) -> None:
    good = {"value": b"v", "topic": "t"}
    whole = pa.RecordBatch.from_pylist([good, good, good | line, good], SCHEMA)
    with pytest.raises(InvalidColumn, match=message):
        for _ in chunks([ArrowRows(encoder(), whole, first_number=5)], PREFIX, 0):
            pass


def test_several_keys_come_as_text_or_as_a_list() -> None:
    columns = MessageColumns(
        body="value", keys="keys", one_key=False, tags=None, headers=None, properties=None,
        topic=None, queue_id=None,
    )  # fmt: skip
    for kind, values in ((pa.string(), ["a b", None]), (pa.list_(pa.string()), [["a", "b"], None])):
        batch = pa.RecordBatch.from_arrays(
            [pa.array([b"1", b"2"]), pa.array(values, kind)], ["value", "keys"]
        )
        rows = ArrowRows(encoder(columns, "t"), batch, first_number=0)
        (chunk,) = (bytes(chunk) for chunk in chunks([rows], PREFIX, 0))
        first = decode_record(chunk)
        second = decode_record(chunk, first.total_size)
        assert first.properties["KEYS"] == "a b"
        assert "KEYS" not in second.properties
