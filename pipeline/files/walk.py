"""Walking ranges of the log with the scan kernel: runs of intact records, and damage between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError
from pipeline.files.store_files import ByteArray, map_file
from storage.format.record import blank_end
from storage.kernels.columns import (
    CHECK_ALL,
    CHECK_COMMIT_OFFSET,
    STOP_BLANK,
    STOP_END,
    STOP_ROWS_FULL,
    new_rows,
    stop_text,
)
from storage.kernels.scan import find_record, scan_records

if TYPE_CHECKING:
    from pipeline.files.store_files import StoreFiles

ROWS_MAX: Final = 8192
ROWS_FIRST: Final = 256  # of a walk in runs of so many bytes, before it knows how long records are
Rows = npt.NDArray[np.int64]


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
) -> Iterator[Run | Hole]:
    """Yield what commit offsets ``[begin, end)`` hold; ``data_offset`` is that of ``data[0]``.

    ``begin`` must be where a record or a file begins; the range lies in one file, and ends where a
    record does. A blank ends the file. With ``run_bytes`` a run is about as long as that, judged by
    the run before it: what is scanned is then still in the processor's cache when it is used.
    """
    rows = new_rows(ROWS_MAX)
    wanted = ROWS_MAX if run_bytes is None else ROWS_FIRST
    position, stop_position = begin - data_offset, end - data_offset
    checks |= CHECK_COMMIT_OFFSET
    while position < stop_position:
        before = position
        count, position, stop = scan_records(
            data, position, stop_position, data_offset + position, checks, rows[:wanted]
        )
        if count:
            yield Run(rows[:count])
            if run_bytes is not None:
                wanted = min(max(run_bytes * count // (position - before), 1), ROWS_MAX)
        if stop in (STOP_ROWS_FULL, STOP_END):
            continue
        if stop == STOP_BLANK and blank_end(data.data, position) >= stop_position:
            return
        following = int(find_record(data, position + 1, stop_position, data_offset + position + 1))
        following = stop_position if following < 0 else following
        yield Hole(data_offset + position, data_offset + following, stop_text(stop))
        position = following


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


def end_of_log(store: StoreFiles) -> int:
    """Commit offset behind the last intact record: of the last file that has one."""
    for file in reversed(store.log):
        data = map_file(file.path)[: file.size]
        position, resume, stop = 0, -1, STOP_END
        rows = new_rows(ROWS_MAX)
        while position < len(data):
            count, position, stop = scan_records(
                data, position, len(data), file.start + position, CHECK_ALL, rows
            )
            if count:
                resume = position
            if stop in (STOP_ROWS_FULL, STOP_END):
                continue
            begin = position + 1
            if stop == STOP_BLANK and blank_end(data.data, position) == len(data):
                break
            following = int(find_record(data, begin, len(data), file.start + begin))
            if following < 0:
                break
            position = following
        if resume >= 0:
            return file.start + resume
    return store.log[0].start if store.log else 0
