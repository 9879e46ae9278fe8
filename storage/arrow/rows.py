"""Rows of a scan, some at a time: of records that lie one after the other, and as many as a batch may have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from storage.format.record_layout import RECORD_SIZE_MIN
from storage.kernels.columns import (
    SIZE,
    STOP_END,
    STOP_ROWS_FULL,
    ByteArray,
    Rows,
    new_rows,
    stop_text,
)
from storage.kernels.scan import scan_records


def parts_of(rows: Rows, limit: int | None) -> Iterator[Rows]:
    """Cut rows so that the records of a part take at most ``limit`` bytes, one at least."""
    if limit is None:
        yield rows
        return
    ends = np.cumsum(rows[:, SIZE])
    begin, before = 0, 0
    while begin < len(rows):
        end = max(begin + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield rows[begin:end]
        begin, before = end, int(ends[end - 1])


def rows_of(data: ByteArray, checks: int, rows_max: int) -> Iterator[Rows]:
    """Yield the rows of an array that holds whole records back to back and nothing else.

    The table is reused. Raises ValueError where there is no record.
    """
    rows = new_rows(min(rows_max, len(data) // RECORD_SIZE_MIN + 1))
    position = 0
    while position < len(data):
        count, position, stop = scan_records(data, position, len(data), 0, checks, rows)
        if count:
            yield rows[:count]
        if stop not in (STOP_ROWS_FULL, STOP_END):
            raise ValueError(f"records arrived damaged: {stop_text(stop)}")
