"""Units built from rows, and from the log in one call."""

from __future__ import annotations

import numpy as np
from plain_records import encode_record

from storage.format.consume_entry import UNIT_SIZE
from storage.kernels.columns import STOP_COMMIT_OFFSET, new_rows
from storage.kernels.queue import RUN_COLUMN_COUNT, build_units, scan_units
from storage.kernels.scan import scan_records

COUNT = 20


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


def test_too_small_arrays_are_reported_and_not_written_past():
    data = placed_log_of(COUNT, 0)
    rows = new_rows(COUNT)
    scan_records(data, 0, data.size, 0, 0, rows)
    room = [np.zeros(COUNT + 1, np.int64) for _ in range(4)]
    small = np.zeros(1, np.int64)
    units = np.zeros(COUNT * UNIT_SIZE, np.uint8)
    assert build_units(data, rows, COUNT, 0, small, *room[:2], units, *room[2:]) == (-1, -1)
    assert build_units(data, rows, COUNT, 0, *room[:3], units[:20], room[3], small) == (6, -1)
