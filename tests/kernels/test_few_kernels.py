"""The kernels for small batches, which keep the interpreter lock, give what the others give."""

from __future__ import annotations

import numpy as np

from storage.format.consume_entry import UNIT_SIZE
from storage.format.record import encode_record
from storage.kernels.batch import group_by_queue
from storage.kernels.columns import STOP_END, new_rows
from storage.kernels.queue import build_units, unit_queue_offsets, units_of_few
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


def test_too_small_arrays_are_told_and_not_written_past():
    data = log_of(COUNT)
    rows = new_rows(COUNT)
    scan_few(data, 0, data.size, 0, 0, rows)
    room = [np.zeros(COUNT + 1, np.int64) for _ in range(4)]
    small = np.zeros(1, np.int64)
    units = np.zeros(COUNT * UNIT_SIZE, np.uint8)
    assert units_of_few(data, rows, COUNT, 0, small, *room[:2], units, *room[2:]) == (-1, -1)
    assert units_of_few(data, rows, COUNT, 0, *room[:3], units[:20], room[3], small) == (3, -1)
