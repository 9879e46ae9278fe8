"""Slices of a buffer become a record, or are left alone, and no byte outside the arrays is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.format.record import decode_record
from storage.kernels import message_slices as kernels
from storage.kernels.encode import ANY_QUEUE

TEXTS = (kernels.TOPIC, kernels.BODY, kernels.KEYS, kernels.TAG, kernels.UNIQUE_KEY)
SIZE = 400


def placed(
    topic: bytes, body: bytes, keys: bytes, tag: bytes, unique_key: bytes
) -> tuple[Any, Any]:
    """A buffer with the texts in it in the reverse order, with gaps, and the fields that say so."""
    data = np.full(SIZE, 0xAA, np.uint8)
    data[: kernels.HEAD_SIZE] = np.frombuffer(b"0" * kernels.HEAD_SIZE, np.uint8)
    fields = np.zeros(kernels.FIELD_COUNT, np.int64)
    at = kernels.HEAD_SIZE
    for text, value in reversed(
        tuple(zip(TEXTS, (topic, body, keys, tag, unique_key), strict=True))
    ):
        at += 3
        data[at : at + len(value)] = np.frombuffer(value, np.uint8)
        fields[text], fields[kernels.SIZES + text] = at, len(value)
        at += len(value)
    fields[kernels.QUEUE_ID] = ANY_QUEUE
    return data, fields


@pytest.mark.parametrize("property_crc", [True, False])
def test_a_record_is_written_from_slices_wherever_they_lie(property_crc: bool) -> None:
    data, fields = placed(b"t", b"body", b"k1 k2", b"new", b"")
    size, begin, end, queue_id = kernels.measure_plain(data, 100, property_crc, fields)
    assert (data[begin:end].tobytes(), queue_id) == (b"t", ANY_QUEUE)
    dst = np.zeros(size + 7, np.uint8)
    assert kernels.write_plain(dst, 7, data, fields, 3, 11, 7_000, 99, 1, 2, property_crc)
    record = decode_record(dst.tobytes(), 7)
    assert (record.topic, record.body) == ("t", b"body")
    assert (record.properties["KEYS"], record.properties["TAGS"]) == ("k1 k2", "new")
    assert (record.queue_id, record.queue_offset, record.commit_offset) == (3, 11, 7_000)
    assert (record.born_timestamp_ms, record.store_timestamp_ms) == (99, 99)
    begin = int(fields[kernels.UNIQUE_KEY])
    assert begin == kernels.UNIQUE_AT
    made = data[begin : begin + kernels.MADE_KEY_SIZE].tobytes().decode()
    assert record.properties["UNIQ_KEY"] == made == "0" * 12 + "00000001" + "000000000002"
    results = [kernels.QUEUE_ID, kernels.QUEUE_OFFSET, kernels.COMMIT_OFFSET, kernels.RECORD_SIZE]
    assert fields[results].tolist() == [3, 11, 7_000, size]


@pytest.mark.parametrize(
    "texts",
    [
        (b"", b"", b"", b"", b""), (b"t" * 128, b"", b"", b"", b""), (b"t", b"x" * 101, b"", b"", b""),
        (b"t", b"", b" k", b"", b""), (b"t", b"", b"k ", b"", b""), (b"t", b"", b"a  b", b"", b""),
        (b"t", b"", b"\xc3\xbc", b"", b""), (b"t", b"", b"k\x01", b"", b""), (b"t", b"", b"", b"a|b", b""),
        (b"t", b"", b"", b"a b", b""), (b"t", b"", b"", b"", b"u v"), (b"t", b"", b"", b"", b"\x7f"),
    ],
)  # fmt: skip
def test_what_may_be_refused_is_not_plain(texts: tuple[bytes, ...]) -> None:
    data, fields = placed(*texts)
    assert kernels.measure_plain(data, 100, True, fields)[0] == -1


numbers = st.sampled_from(
    [0, 1, 50, 64, SIZE - 1, SIZE, SIZE + 1, -1, 2**31, 2**62, 2**63 - 1, -(2**63)]
)


@given(st.dictionaries(st.integers(0, kernels.FIELD_COUNT - 1), numbers, max_size=3), st.booleans())
@settings(max_examples=600, deadline=None)
def test_wrong_places_are_refused(changes: dict[int, int], property_crc: bool) -> None:
    """Each slice is inside the buffer, or the message is not plain and is not written."""
    data, fields = placed(b"t", b"body", b"k1 k2", b"new", b"U")
    for field, value in changes.items():
        fields[field] = value
    fit = all(
        int(fields[text]) >= 0 and int(fields[kernels.SIZES + text]) >= 0
        and int(fields[text]) + int(fields[kernels.SIZES + text]) <= SIZE
        for text in TEXTS
    )  # fmt: skip
    size = kernels.measure_plain(data, 100, property_crc, fields)[0]
    assert fit or size == -1
    dst = np.full(2 * SIZE, 0xEE, np.uint8)
    if not fit:
        assert not kernels.write_plain(dst, 0, data, fields, 0, 0, 0, 1, 1, 2, property_crc)
        assert (dst == 0xEE).all()
    elif size >= 0:
        assert kernels.write_plain(dst, 5, data, fields, 0, 0, 0, 1, 1, 2, property_crc)
        assert (dst[:5] == 0xEE).all()
        assert (dst[5 + size :] == 0xEE).all()
        assert not kernels.write_plain(dst[:size], 1, data, fields, 0, 0, 0, 1, 1, 2, property_crc)
