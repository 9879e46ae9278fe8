"""A broker's query by key, before it reads the records: at most 64, whole seconds, early stops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import unpack_from
from typing import Final, NamedTuple

from storage.format.index import ENTRY, HEADER_SIZE, SLOT_SIZE, entry_position, key_hash
from storage.view.index.index_file import IndexFileView
from storage.view.index.key_index import IndexFiles

RESULTS_MAX: Final = 64


class KeyAnswer(NamedTuple):
    """Commit offsets, newest first, and what the newest file says of its end; zeros with none."""

    commit_offsets: list[int]
    last_update_timestamp_ms: int
    last_update_commit_offset: int


def chain_of(file: IndexFileView, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int]:
    """Yield the commit offsets of a hash's entries that the header counts, up to the first one before the times.

    The chain ends there at entries of other keys, too, which nobody sees from outside.
    """
    slot_count, header = file.shape.slot_count, file.header
    above = min(header.next_entry, file.shape.entry_count - 1) + 1
    (entry,) = unpack_from(">i", file._array, HEADER_SIZE + SLOT_SIZE * (hashed % slot_count))
    while 0 < entry < above:
        above, position = entry, entry_position(slot_count, entry)
        key, commit_offset, delta_s, entry = ENTRY.unpack_from(file._array, position)
        time = header.begin_timestamp_ms + delta_s * 1_000
        if delta_s < 0 or time < begin_ms:
            return
        if key == hashed and time <= end_ms:
            yield commit_offset


def offsets_by_key(
    index: IndexFiles, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int
) -> KeyAnswer:
    """Return the candidates that a broker finds for a key and a range of times."""
    count_max = min(count_max, RESULTS_MAX)
    hashed = key_hash(topic, key)
    offsets: list[int] = []
    files = list(index.by_number.values())
    for file in reversed(files):
        header = file.header
        overlaps = begin_ms <= header.end_timestamp_ms and end_ms >= header.begin_timestamp_ms
        if overlaps and header.next_entry > 1:
            found = chain_of(file, hashed, begin_ms, end_ms)
            offsets += islice(found, count_max - len(offsets))
        if header.begin_timestamp_ms < begin_ms or len(offsets) >= count_max:
            break
    if not offsets:
        return KeyAnswer([], 0, 0)
    newest = files[-1].header
    return KeyAnswer(offsets, newest.end_timestamp_ms, newest.end_commit_offset)
