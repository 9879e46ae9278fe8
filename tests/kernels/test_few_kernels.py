"""The kernels for small batches, which keep the interpreter lock, give what the others give."""

from __future__ import annotations

import numpy as np
import pytest

from storage.format.consume_entry import UNIT_SIZE
from storage.format.record import encode_record
from storage.kernels import columns
from storage.kernels.batch import group_by_queue
from storage.kernels.columns import CHECK_COMMIT_OFFSET, STOP_COMMIT_OFFSET, STOP_END, new_rows
from storage.kernels.queue import (
    RUN_COLUMN_COUNT,
    build_units,
    scan_units,
    scan_units_of_few,
    unit_queue_offsets,
    units_of_few,
)
from storage.kernels.scan import scan_few, scan_records

COUNT = 20


def log_of(count: int) -> np.ndarray:
    return np.frombuffer(
        b"".join(
            encode_record(topic="t", queue_id=n % 3, body=b"b" * n, queue_offset=n // 3)
            for n in range(count)
        ),
        np.uint8,
    )


def test_few_rows_are_scanned_and_built_as_many_are():
    data = log_of(COUNT)
    rows, few_rows = new_rows(COUNT), new_rows(COUNT)
    assert scan_records(data, 0, data.size, 0, 0, rows) == (COUNT, data.size, STOP_END)
    assert scan_few(data, 0, data.size, 0, 0, few_rows) == (COUNT, data.size, STOP_END)
    assert (rows == few_rows).all()

    def arrays() -> list[np.ndarray]:
        return [np.zeros(COUNT + 1, np.int64) for _ in range(5)]

    group_of, first_row, group_size, start, offsets = arrays()
    units = np.zeros(COUNT * UNIT_SIZE, np.uint8)
    groups = group_by_queue(data, rows, COUNT, group_of, first_row, group_size)
    total = build_units(rows, COUNT, group_of, groups, 500, units, start)
    unit_queue_offsets(rows, COUNT, group_of, groups, start, offsets)

    few = arrays()
    few_units = np.zeros(COUNT * UNIT_SIZE, np.uint8)
    assert units_of_few(
        data, rows, COUNT, 500, few[0], few[1], few[2], few_units, few[3], few[4]
    ) == (groups, total) == (3, COUNT)  # fmt: skip
    assert (few_units == units).all()
    for many, expected in zip((group_of, first_row, group_size, start, offsets), few, strict=True):
        assert (many == expected).all()


def test_too_small_arrays_are_reported_and_not_written_past():
    data = log_of(COUNT)
    rows = new_rows(COUNT)
    scan_few(data, 0, data.size, 0, 0, rows)
    room = [np.zeros(COUNT + 1, np.int64) for _ in range(4)]
    small = np.zeros(1, np.int64)
    units = np.zeros(COUNT * UNIT_SIZE, np.uint8)
    assert units_of_few(data, rows, COUNT, 0, small, *room[:2], units, *room[2:]) == (-1, -1)
    assert units_of_few(data, rows, COUNT, 0, *room[:3], units[:20], room[3], small) == (3, -1)


def placed_log_of(count: int, base: int) -> np.ndarray:
    parts: list[bytes] = []
    for n in range(count):
        parts.append(
            encode_record(
                topic=f"t{n % 2}", queue_id=n % 3, body=b"b" * n, queue_offset=7 + n // 6,
                commit_offset=base + sum(map(len, parts)),
            )
        )  # fmt: skip
    return np.frombuffer(b"".join(parts), np.uint8)


@pytest.mark.parametrize("scan_into", [scan_units, scan_units_of_few])
def test_one_call_scans_groups_and_builds_what_four_do(scan_into):
    base = 4_096
    data = placed_log_of(COUNT, base)
    rows = new_rows(COUNT)
    group_of, first_row, group_size, start, offsets = (
        np.zeros(COUNT + 1, np.int64) for _ in range(5)
    )
    units = np.zeros(COUNT * UNIT_SIZE, np.uint8)
    scanned = scan_records(data, 0, data.size, base, CHECK_COMMIT_OFFSET, rows)
    groups = group_by_queue(data, rows, COUNT, group_of, first_row, group_size)
    build_units(rows, COUNT, group_of, groups, base, units, start)
    unit_queue_offsets(rows, COUNT, group_of, groups, start, offsets)

    few = [np.zeros(COUNT + 1, np.int64) for _ in range(5)]
    few_units = np.zeros(COUNT * UNIT_SIZE, np.uint8)
    few_rows = new_rows(COUNT)
    runs = np.zeros((COUNT, RUN_COLUMN_COUNT), np.int64)
    *found, features, run_count = scan_into(
        data, base, few_rows, few[0], few[1], few[2], few_units, few[3], few[4], runs
    )

    assert tuple(found) == scanned
    assert run_count == groups == 6
    assert features == np.bitwise_or.reduce(rows[:, columns.FEATURES])
    assert (few_rows == rows).all()
    assert (few_units == units).all()
    assert (few[4] == offsets).all()
    for group, (position, length, queue_id, begin, end, first) in enumerate(runs[:groups].tolist()):
        row = rows[first_row[group]]
        assert data[position : position + length].tobytes() == b"t%d" % (group % 2)
        assert queue_id == row[columns.QUEUE_ID] == group % 3
        assert (begin, end) == (start[group], start[group + 1])
        assert first == 7


def test_a_scan_into_units_stops_where_a_record_says_it_stands_elsewhere():
    data = np.concatenate([placed_log_of(3, 0), placed_log_of(1, 0)])
    room = [np.zeros(5, np.int64) for _ in range(5)]
    runs = np.zeros((5, RUN_COLUMN_COUNT), np.int64)
    units = np.zeros(5 * UNIT_SIZE, np.uint8)
    count, position, stop, _, run_count = scan_units(
        data, 0, new_rows(5), *room[:3], units, *room[3:], runs
    )
    assert (count, stop, run_count) == (3, STOP_COMMIT_OFFSET, 3)
    assert position == placed_log_of(3, 0).size
    assert runs[:3, 4].tolist() == [1, 2, 3]
