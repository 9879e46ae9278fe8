"""A broker's query by key, before it reads the records: at most 64, whole seconds, early stops."""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.format.index import key_hash
from storage.view.index.reader import IndexReader

RESULTS_MAX: Final = 64


class KeyAnswer(NamedTuple):
    """Commit offsets, newest first, and what the newest file says of its end; zeros with none."""

    commit_offsets: list[int]
    last_update_timestamp_ms: int
    last_update_commit_offset: int


def offsets_by_key(
    reader: IndexReader, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int
) -> KeyAnswer:
    """Return the candidates that a broker finds for a key and a range of times."""
    count_max = min(count_max, RESULTS_MAX)
    hashed = key_hash(topic, key)
    offsets: list[int] = []
    files = reader.files
    for file in reversed(files):
        header = file.header
        overlaps = begin_ms <= header.end_timestamp_ms and end_ms >= header.begin_timestamp_ms
        if overlaps and header.next_entry > 1:
            walk = file.find(
                hashed,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count_max=count_max - len(offsets),
                entry_limit=header.next_entry,
                in_time_order=True,
            )
            offsets += walk.commit_offsets
        if header.begin_timestamp_ms < begin_ms or len(offsets) >= count_max:
            break
    if not offsets:
        return KeyAnswer([], 0, 0)
    newest = files[-1].header
    return KeyAnswer(offsets, newest.end_timestamp_ms, newest.end_commit_offset)
