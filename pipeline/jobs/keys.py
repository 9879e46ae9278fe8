"""The keys of records as the index has them: hash, commit offset and store time of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.kernels.columns import ByteArray, Rows
from storage.kernels.index import KEYS_OF_A_RECORD_MAX, NO_KEY, key_hashes

KEYS_AT_ONCE: Final = 4 * KEYS_OF_A_RECORD_MAX
Longs = npt.NDArray[np.int64]


class KeyHasher:
    """Hashes the keys of rows, in order; records without a key are left out."""

    def __init__(self) -> None:
        self._arrays = np.empty((3, KEYS_AT_ONCE), np.int64)

    def of(
        self, data: ByteArray, rows: Rows, data_offset: int
    ) -> Iterator[tuple[Longs, Longs, Longs]]:
        """Yield hashes, commit offsets and store times; good until the next is asked for."""
        hashes, offsets, times = self._arrays
        row = 0
        while row < len(rows):
            count, row = key_hashes(data, rows, row, len(rows), data_offset, hashes, offsets, times)
            kept = hashes[:count] != NO_KEY
            yield hashes[:count][kept], offsets[:count][kept], times[:count][kept]
