"""Messages of a queue as bitmaps: 64 adjacent queue offsets are a block, some messages of it a mask."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.kernels.primitives.jit import ROWS, WRITABLE_ROWS, i64, int64, kernel

BLOCK_BITS: Final = 6
BLOCK_SIZE: Final = 1 << BLOCK_BITS
_MASK: Final = BLOCK_SIZE - 1
_ALL_BITS: Final = (1 << BLOCK_SIZE) - 1
_RUN_COLUMNS: Final = 4

Run = tuple[int, int, int, int]
"""Block number, mask, and which lines they are of: begin and end."""


@kernel(int64(ROWS, int64, WRITABLE_ROWS))
def cut_runs(lines: Any, offset_column: int, runs: Any) -> int:
    """Cut lines into runs that share the block and all columns after the one of the queue offset.

    Fills the four columns of ``runs``, the mask as a signed number; returns how many, -1 if there is no room.
    """
    count = i64(0)
    if not 0 <= offset_column < lines.shape[1] or runs.shape[1] < _RUN_COLUMNS:
        return i64(-1)
    for i in range(lines.shape[0]):
        offset = lines[i, offset_column]
        bit = i64(1) << (offset & _MASK)
        is_same = count > 0 and runs[count - 1, 0] == offset >> BLOCK_BITS
        for column in range(offset_column + 1, lines.shape[1]):
            is_same = is_same and lines[i, column] == lines[i - 1, column]
        if is_same:
            runs[count - 1, 1] |= bit
            runs[count - 1, 3] = i + 1
            continue
        if count == runs.shape[0]:
            return i64(-1)
        runs[count, 0] = offset >> BLOCK_BITS
        runs[count, 1] = bit
        runs[count, 2] = i
        runs[count, 3] = i + 1
        count += 1
    return count


def runs_of(lines: npt.NDArray[np.int64], offset_column: int = 0) -> list[Run]:
    """Return the runs of lines, in their order."""
    runs = np.empty((len(lines), _RUN_COLUMNS), np.int64)
    count = cut_runs(lines, offset_column, runs)
    return [
        (number, mask & _ALL_BITS, begin, end) for number, mask, begin, end in runs[:count].tolist()
    ]
