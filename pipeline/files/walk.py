"""Walking ranges of the log: runs of intact records, and damage between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pipeline.errors import PipelineError
from storage.kernels.columns import (
    CHECK_ALL,
    STOP_END,
    STOP_ROWS_FULL,
    ByteArray,
    Rows,
    new_rows,
    stop_text,
)
from storage.kernels.scan import scan_records
from storage.view.log.walk import RANGE_ROWS_MAX, Records, walk_range

ROWS_MAX: Final = RANGE_ROWS_MAX


class Run(NamedTuple):
    """Intact records that lie back to back; ``rows`` hold positions in the walked array.

    The table is reused: it is good until the walk goes on.
    """

    rows: Rows


class Hole(NamedTuple):
    """Commit offsets ``[begin, end)`` hold no intact record."""

    begin: int
    end: int
    reason: str


def walk(
    data: ByteArray,
    data_offset: int,
    begin: int,
    end: int,
    *,
    checks: int = CHECK_ALL,
    run_bytes: int | None = None,
    file_end: int | None = None,
) -> Iterator[Run | Hole]:
    """Yield what commit offsets ``[begin, end)`` hold; see ``walk_range``."""
    for step in walk_range(
        data, data_offset, begin, end, checks=checks, run_bytes=run_bytes, file_end_offset=file_end
    ):
        if isinstance(step, Records):
            yield Run(step.rows)
        else:
            yield Hole(step.begin_offset, step.end_offset, step.reason)


def rows_of(data: ByteArray, checks: int) -> Iterator[Rows]:
    """Yield the rows of an array that holds whole records back to back and nothing else.

    The table is reused. Raises PipelineError where there is no record.
    """
    rows = new_rows(ROWS_MAX)
    position = 0
    while position < len(data):
        count, position, stop = scan_records(data, position, len(data), 0, checks, rows)
        if count:
            yield rows[:count]
        if stop not in (STOP_ROWS_FULL, STOP_END):
            raise PipelineError(f"records arrived damaged: {stop_text(stop)}; read again")
