"""The keys of records as the index has them: hash, commit offset and store time of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.kernels.index import KEYS_OF_A_RECORD_MAX, NO_KEY, key_hashes
from storage.view.log.walk import RecordRun

KEYS_AT_ONCE: Final = 4 * KEYS_OF_A_RECORD_MAX
Longs = npt.NDArray[np.int64]


class KeyHasher:
    """Hashes the keys of a run of records, in order; records without a key are left out."""

    def __init__(self) -> None:
        self._arrays = np.empty((3, KEYS_AT_ONCE), np.int64)

    def of(self, records: RecordRun) -> Iterator[tuple[Longs, Longs, Longs]]:
        """Yield hashes, commit offsets and store times; good until the next is asked for."""
        hashes, offsets, times = self._arrays
        row, row_count = 0, len(records.rows)
        while row < row_count:
            count, row = key_hashes(
                records.data, records.rows, row, row_count, records.data_offset,
                hashes, offsets, times,
            )  # fmt: skip
            kept = hashes[:count] != NO_KEY
            yield hashes[:count][kept], offsets[:count][kept], times[:count][kept]
