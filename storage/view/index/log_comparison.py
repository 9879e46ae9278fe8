"""An index file compared with the keys of the log: for a file without a checksum, as a broker leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.format.index import TIME_DELTA_MAX_S
from storage.kernels.columns import CHECK_COMMIT_OFFSET
from storage.kernels.index import follow_chains
from storage.view.index.keys import KeyHasher
from storage.view.log.commit_log import LENGTH_SIZE, record_runs

if TYPE_CHECKING:
    from storage.view.index.entries import IndexEntries
    from storage.view.log.commit_log import LogView


def is_like_the_log(file: IndexEntries, log: LogView, min_offset: int) -> bool:
    """Whether the entries of a file are the keys of the log, in order, and its slots lead to them.

    A kill may leave one slot that is an entry ahead of the header. A file of records that the log has no
    more is not compared.
    """
    header = file.header()
    count = file.counted(header)
    if count <= 0 or header.begin_commit_offset < min_offset:
        return True
    entries = file.entries(count)
    first, last = int(entries["offset"][0]), int(entries["offset"][-1])
    if (first, last) != (header.begin_commit_offset, header.end_commit_offset):
        return False
    hasher, at = KeyHasher(), 0
    # Checksums of records do not matter, as they do not to the indexer.
    for run in record_runs(log, first, _end_of_record(log, last), checks=CHECK_COMMIT_OFFSET):
        for hashes, offsets, times in hasher.of(run):
            # The files beside it may have keys of its first and of its last record.
            of_others = int(np.count_nonzero(offsets == first)) if at == 0 else 0
            begin = max(of_others - int(np.count_nonzero(entries["offset"] == first)), 0)
            if first == last:
                return bool(np.isin(entries["hash"], hashes).all())
            found = entries[at : at + len(hashes) - begin]
            kept = slice(begin, begin + len(found))
            deltas = np.clip((times[kept] - header.begin_timestamp_ms) // 1000, 0, TIME_DELTA_MAX_S)
            if at == 0 and len(found):
                deltas[0] = found["delta"][0]  # it is held against the end of the file before
            if not (
                np.array_equal(found["hash"], hashes[kept])
                and np.array_equal(found["offset"], offsets[kept])
                and np.array_equal(found["delta"], deltas)
            ):
                return False
            at += len(found)
    return at == count and _has_its_links(file, count)


def _end_of_record(log: LogView, commit_offset: int) -> int:
    length = log.bytes_at(commit_offset, LENGTH_SIZE) or b""
    return commit_offset + max(int.from_bytes(length, "big", signed=True), 0)


def _has_its_links(file: IndexEntries, count: int) -> bool:
    data = file.data()
    newest = np.zeros(file.slot_count, np.int32)
    wrong, _ = follow_chains(data, file.slot_count, count, newest, np.empty(1, np.int64))
    slots = file.slots(data)
    return int(wrong) == 0 and not np.any((slots != newest) & (slots != count + 1))
