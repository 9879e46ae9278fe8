"""Records given a new place, topic and property, compared with encoding them again in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_records import check_record

from pipeline.errors import PipelineError
from pipeline.jobs.new_store.log_layout import sizes_of
from pipeline.jobs.new_store.log_slices import SliceRecords
from pipeline.jobs.replay import Marked
from storage.format.properties import decode_properties, encode_properties
from storage.format.record import decode_record, encode_for_batch
from storage.format.stops import Stop
from storage.kernels.columns import (
    COMMIT_OFFSET,
    STOP_END,
    new_rows,
)
from storage.kernels.placing import lay_out, place_at, placed_sizes
from storage.kernels.same_keys import group_by_key
from storage.kernels.scan import scan_records

EMPTY = np.empty(0, np.uint8)
NONE = np.empty(0, np.int64)
RECORD = st.tuples(
    st.sampled_from(["t", "orders", "%RETRY%" + "x" * 200]),
    st.binary(max_size=50),
    st.dictionaries(st.sampled_from(["KEYS", "TAGS", "a", "b"]), st.text("xyz ", min_size=1), max_size=4),
    st.booleans(),
    st.booleans(),
)  # fmt: skip


def encoded(topic: str, body: bytes, properties: dict[str, str], trailer: bool, cut: bool) -> bytes:
    block = encode_properties(properties)
    if cut and not trailer:
        block = block[:-1]  # a last pair without its end, which readers accept
    return encode_for_batch(topic, 3, body, block, 7, 0, 1_000, "10.0.0.1:5", trailer)


def scanned(records: list[bytes]) -> tuple[Any, Any]:
    data = np.frombuffer(b"".join(records), np.uint8)
    rows = new_rows(len(records) + 1)
    count, _, stop = scan_records(data, 0, len(data), 0, 0, rows)
    assert stop == STOP_END and count == len(records)
    return data, rows[:count]


def place(
    kernel: bool, data: Any, rows: Any, topic: str, marks: list[bytes], file_size: int
) -> tuple[Any, Any, Any]:
    sizes_of, lay, put = (
        (placed_sizes, lay_out, place_at)
        if kernel
        else (placed_sizes.py_func, lay_out.py_func, place_at.py_func)
    )
    extra = np.frombuffer(b"".join(marks), np.uint8) if marks else EMPTY
    starts = np.cumsum([0, *map(len, marks)]).astype(np.int64) if marks else NONE
    sizes, offsets = np.empty((2, len(rows)), np.int64)
    total = int(sizes_of(data, rows, len(topic), starts, sizes))
    assert total == sizes.sum()
    end = int(lay(sizes, 5000, file_size, offsets))
    out = np.zeros(end, np.uint8)
    numbers = np.arange(len(rows), dtype=np.int64)
    name = np.frombuffer(topic.encode(), np.uint8)
    assert put(
        out, 0, data, rows, sizes, offsets, numbers % 2, numbers + 9, name, extra, starts
    ) == len(rows)
    return out, sizes, offsets


@given(
    st.lists(RECORD, min_size=1, max_size=6),
    st.sampled_from(["", "new", "%DLQ%" + "y" * 150]),
    st.booleans(),
)
def test_a_placed_record_is_the_old_one_but_for_what_changes(
    given_records: list[Any], topic: str, marked: bool
) -> None:
    """Every field compared, every checksum right; the plain Python twin writes the same bytes."""
    data, rows = scanned([encoded(*record) for record in given_records])
    marks = [b"MARK\x01%d\x02" % number for number in range(len(rows))] if marked else []
    out, sizes, offsets = place(True, data, rows, topic, marks, 4096)
    twin, _, _ = place(False, data, rows, topic, marks, 4096)

    assert (out == twin).all()
    whole = out.tobytes()
    for number, (old_topic, body, properties, trailer, _) in enumerate(given_records):
        at = int(offsets[number])
        record = decode_record(whole, at)
        assert check_record(whole[at : at + int(sizes[number])], 0, at) is Stop.END
        assert record.total_size == sizes[number]
        assert (record.queue_id, record.queue_offset, record.commit_offset) == (
            number % 2,
            number + 9,
            at,
        )
        assert (record.topic, record.body, record.flag) == (topic or old_topic, body, 7)
        wanted = dict(properties) | ({"MARK": str(number)} if marked else {})
        found = decode_properties(record.properties_block)
        assert ("__CRC32#" in found) == trailer
        found.pop("__CRC32#", None)
        assert found == wanted


@given(st.lists(st.integers(91, 300), min_size=1, max_size=40), st.integers(0, 700))
def test_records_are_laid_out_as_an_appender_would(sizes: list[int], begin: int) -> None:
    """One after the other; into the next file where no blank of 8 bytes would fit after it."""
    offsets = np.empty(len(sizes), np.int64)
    begin = begin if begin % 350 <= 342 else 0
    end = lay_out(np.array(sizes, np.int64), begin, 350, offsets)
    position = begin
    for size, offset in zip(sizes, offsets.tolist(), strict=True):
        left = 350 - position % 350
        position = position if size + 8 <= left else position + left
        assert offset == position
        position += size
    assert end == position


def test_a_message_without_room_for_a_mark_is_named_by_its_place() -> None:
    few, many = {"KEYS": "k"}, {"KEYS": "k", "a": "x" * 32_740}
    data, rows = scanned([encoded("t", b"", each, False, False) for each in (few, many, few)])
    taken = SliceRecords(0, data, rows, [("t", 3)], np.zeros(3, np.int64))
    rows[:, COMMIT_OFFSET] = (0, 4711, 40_000)
    with pytest.raises(PipelineError, match=r"commit offset 4711 has no room .* 32767 bytes"):
        sizes_of(taken, Marked())


@pytest.mark.filterwarnings("ignore:overflow encountered")
@given(
    st.lists(
        st.tuples(st.sampled_from(["t", "u"]), st.text("ab", min_size=1, max_size=3)),
        min_size=1, max_size=30,
    )
)  # fmt: skip
def test_records_are_grouped_by_topic_and_key_as_a_dictionary_does(
    pairs: list[tuple[str, str]],
) -> None:
    data, rows = scanned([encoded(topic, b"", {"KEYS": key}, False, False) for topic, key in pairs])
    for group in (group_by_key, group_by_key.py_func):
        key_of, last_row, hashes = np.empty((3, len(pairs)), np.int64)
        distinct = int(group(data, rows, key_of, last_row, hashes))
        assert distinct == len(set(pairs))
        assert [pairs[last_row[key_of[i]]] for i in range(len(pairs))] == pairs
        last = {pair: number for number, pair in enumerate(pairs)}
        assert {pairs[row]: int(row) for row in last_row[:distinct]} == last


@pytest.mark.parametrize("kernel", [place_at, place_at.py_func])
def test_nothing_is_written_outside_the_array(kernel: Any) -> None:
    data, rows = scanned([encoded("t", b"body", {}, True, False)])
    sizes = np.array([len(data)], np.int64)
    out = np.zeros(len(data) - 1, np.uint8)
    zero = np.zeros(1, np.int64)
    assert kernel(out, 0, data, rows, sizes, zero, zero, zero, EMPTY, EMPTY, NONE) == -1
    assert kernel(out, 1, data, rows, sizes, zero, zero, zero, EMPTY, EMPTY, NONE) == -1
    assert not out.any()
