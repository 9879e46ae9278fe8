"""A kernel does what its plain Python twin does, on whatever bytes it is given.

Compiled code has no checks of bounds, plain Python has: a twin that touched a byte outside its arrays would raise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_examples import (
    INT64S,
    as_array,
    client_batches,
    damaged,
    logs,
)

from storage.format.producer_sequence import SEQUENCE_PROPERTY_SIZE
from storage.kernels import batch, client_records, columns, queue, scan
from storage.kernels import index as index_kernels

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
BASE = 4096
ANY_BYTES = st.one_of(
    st.binary(max_size=200), damaged(logs(BASE)), damaged(client_batches()), logs(BASE)
)
few = settings(max_examples=80, deadline=None)


def twins(kernel: Any, *arguments: Any) -> tuple[list[Any], list[Any]]:
    """Results of the kernel and of its twin, followed by the arrays as each left them."""
    outcomes = []
    for function in (kernel, kernel.py_func):
        own = [
            a.copy() if isinstance(a, np.ndarray) and a.flags.writeable else a for a in arguments
        ]
        with np.errstate(over="ignore"):
            result = function(*own)
        values = [int(v) for v in result] if isinstance(result, tuple) else [int(result)]
        outcomes.append(values + [a.tolist() for a in own if isinstance(a, np.ndarray)])
    return outcomes[0], outcomes[1]


def zero_rows(capacity: int) -> Any:
    return np.zeros((capacity, columns.COLUMN_COUNT), np.int64)


def scanned(data: bytes, capacity: int = 8) -> tuple[Any, Any, int]:
    """The array, the row table and the number of rows of whatever scans out of ``data``."""
    array = as_array(data)
    rows = zero_rows(capacity)
    count, _, _ = scan.scan_records(array, 0, len(data), BASE, 0, rows)
    return array, rows, int(count)


@given(ANY_BYTES, st.integers(-1, 60), st.integers(-1, 900), st.integers(0, 7), st.integers(0, 3))
@few
def test_scan_records(data: bytes, begin: int, end: int, checks: int, capacity: int) -> None:
    for until in (end, len(data)):
        compiled, plain = twins(
            scan.scan_records, as_array(data), begin, until, BASE + begin, checks,
            zero_rows(capacity),
        )  # fmt: skip

        assert compiled == plain


@given(st.binary(max_size=99), damaged(logs(BASE + 7, 3)))
@settings(max_examples=40, deadline=None)
def test_find_record(noise: bytes, log: bytes) -> None:
    data = noise + log
    begin_offset = BASE + 7 - len(noise)

    compiled, plain = twins(scan.find_record, as_array(data), 0, len(data), begin_offset)

    assert compiled == plain


@given(st.one_of(ANY_BYTES, client_batches()), st.integers(0, 5))
@few
def test_validate_batch(data: bytes, capacity: int) -> None:
    compiled, plain = twins(client_records.validate_batch, as_array(data), zero_rows(capacity))

    assert compiled == plain


@given(
    client_batches(), st.booleans(), st.sampled_from((b"\x0a\0\0\5\0\0\x2a\x9f", bytes(20))), INT64S,
    st.integers(0, 200), st.sampled_from((0, 1, (1 << 63) - 1)),
)  # fmt: skip
@few
def test_placing(
    data: bytes, append_crc: bool, host: bytes, timestamp: int, room: int, producer_id: int
) -> None:
    array, rows, count = scanned(data)
    sizes = np.zeros(8, np.int64)

    compiled, plain = twins(batch.placed_size, array, rows, count, len(host), append_crc, sizes)

    assert compiled == plain
    for space in (room, compiled[0], compiled[0] + 5, compiled[0] + SEQUENCE_PROPERTY_SIZE):
        dst = np.full(3 + max(space, 0), 0xEE, np.uint8)
        compiled_placed, plain_placed = twins(
            batch.place_records, dst, 3, array, rows, count, np.arange(count, dtype=np.int64),
            np.arange(count, dtype=np.int64) * 7, BASE, timestamp, as_array(host), append_crc,
            zero_rows(8), producer_id, 7,
        )  # fmt: skip

        assert compiled_placed == plain_placed


@given(ANY_BYTES, st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
@few
def test_scan_into_units(data: bytes, row_count: int, room: int, run_room: int) -> None:
    arrays = [np.zeros(room, np.int64) for _ in range(3)]
    arguments = (
        as_array(data), BASE, zero_rows(row_count), *arrays, np.zeros(20 * room, np.uint8),
        np.zeros(room + 1, np.int64), np.zeros(room, np.int64),
        np.zeros((run_room, queue.RUN_COLUMN_COUNT), np.int64),
    )  # fmt: skip

    compiled, plain = twins(queue.scan_units, *arguments)

    assert compiled == plain


SLOTS, ENTRIES = 3, 8
SIZE = 40 + 4 * SLOTS + 20 * ENTRIES
INDEX_BYTES = st.one_of(
    st.just(bytes(SIZE)),
    st.binary(min_size=SIZE, max_size=SIZE),
    st.lists(st.integers(0, 9), min_size=SIZE // 4, max_size=SIZE // 4).map(
        lambda words: b"".join(word.to_bytes(4, "big") for word in words)
    ),
    st.binary(max_size=50),
)


@given(
    INDEX_BYTES, st.integers(-1, 9), st.integers(-1, 9), INT64S, INT64S, st.integers(0, 5),
)  # fmt: skip
@few
def test_walk_chain(
    data: bytes, hashed: int, first: int, begin: int, end: int, room: int,
) -> None:  # fmt: skip
    compiled, plain = twins(
        index_kernels.walk_chain, as_array(data), SLOTS, ENTRIES, hashed, first, begin, end,
        np.zeros(room, np.int64),
    )  # fmt: skip

    assert compiled == plain
