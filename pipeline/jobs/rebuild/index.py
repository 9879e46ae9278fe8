"""Index files from the log, byte for byte a broker's.

Which entry a key gets follows from the number of keys before it. So one pass counts the keys of every
piece, their sums say where in the log each file begins, and then one task makes one file: it walks the
log from there, in order, and puts key after key as a broker does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.errors import PipelineError
from pipeline.jobs.work import walk_piece
from storage.format.names import INDEX_NAME_LENGTH, index_file_name
from storage.index.follower import RunKeys
from storage.index.index_file import IndexFile
from storage.kernels.columns import CHECK_COMMIT_OFFSET, POSITION
from storage.stopped.files import without_file
from storage.view.index.index_file import IndexShape
from storage.view.index.keys import KeyHasher
from storage.view.log.walk import RecordRun

if TYPE_CHECKING:
    from storage.view.pieces import LogPiece
    from storage.view.store_view import StoreView


class Seed(NamedTuple):
    """Store time and place of the last key of the file before: what a new header begins with."""

    timestamp_ms: int
    commit_offset: int


@dataclass(frozen=True, slots=True)
class KeyCount:
    """Keys of one piece, the last of them, and whether a record follows it."""

    count: int = 0
    last: Seed | None = None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class IndexTask:
    """One file: where it goes, from which key of its first piece on, and up to how many."""

    path: str
    shape: IndexShape
    pieces: tuple[LogPiece, ...]
    skip: int
    key_count: int
    seed: Seed | None


def count_keys(piece: LogPiece) -> KeyCount:
    """Count the keys of a piece."""
    hasher, count, last, newest = KeyHasher(), 0, None, -1
    for records in _records(piece):
        for hashes, offsets, times in hasher.of(records):
            count += len(hashes)
            if len(hashes):
                last = Seed(int(times[-1]), int(offsets[-1]))
        newest = records.data_offset + int(records.rows[-1, POSITION])
    return KeyCount(count, last, newest > (-1 if last is None else last.commit_offset))


def _records(piece: LogPiece) -> Iterator[RecordRun]:
    """Yield the records whose keys count. Checksums do not matter, as they do not to the indexer."""
    for step in walk_piece(piece, checks=CHECK_COMMIT_OFFSET):
        if isinstance(step, RecordRun):
            yield step


def index_shape(
    store: StoreView, slot_count: int | None = None, entry_count: int | None = None
) -> IndexShape:
    """Return the shape for a store's index files: as given, else as they have it.

    Raises PipelineError if only one number is given, or one that cannot be.
    """
    if (slot_count is None) != (entry_count is None):
        raise PipelineError("index_slot_count and index_entry_count go together; give both")
    if slot_count is not None and entry_count is not None:
        if slot_count < 1 or not 2 <= entry_count < 1 << 31:
            raise PipelineError(
                f"an index file of {slot_count} slots and {entry_count} entries cannot be:"
                " index_slot_count is 1 at least, index_entry_count 2"
            )
        return IndexShape(slot_count, entry_count)
    sizes = store.sizes
    return IndexShape(sizes.index_slot_count, sizes.index_entry_count)


def plan_index(
    pieces: Sequence[LogPiece],
    counts: Sequence[KeyCount],
    shape: IndexShape,
    directory: Path,
    newest_name: int,
    now_ms: int,
) -> list[IndexTask]:
    """Return the tasks that make the files; names are later than ``newest_name`` and the clock's."""
    keys_max = shape.entry_count - 1
    sums = np.cumsum([0, *(count.count for count in counts)]).tolist()
    total = sums[-1]
    starts = list(range(0, total, keys_max))
    lasts = [place for place, count in enumerate(counts) if count.count]
    follows = bool(lasts) and (
        counts[lasts[-1]].follows or any(each.follows for each in counts[lasts[-1] + 1 :])
    )
    some_record = any(each.follows or each.count for each in counts)
    if (total == 0 and some_record) or (total and total % keys_max == 0 and follows):
        starts.append(total)  # a full file gets its successor with the next record, keyed or not
    first_name = max(int(index_file_name(now_ms)), newest_name + 1)
    tasks = []
    for number, start in enumerate(starts):
        name = f"{first_name + number:0{INDEX_NAME_LENGTH}d}"
        end = min(start + keys_max, total)
        first = int(np.searchsorted(sums, start, side="right")) - 1
        last = int(np.searchsorted(sums, end, side="left"))
        before = [count.last for count in counts[:first] if count.last is not None]
        tasks.append(
            IndexTask(
                path=str(directory / name),
                shape=shape,
                pieces=tuple(pieces[first:last]) if start < end else (),
                skip=start - sums[first] if start < end else 0,
                key_count=end - start,
                seed=_seed_at_end(counts) if start == end else (before[-1] if before else None),
            )
        )
    return tasks


def _seed_at_end(counts: Sequence[KeyCount]) -> Seed | None:
    return next((each.last for each in reversed(counts) if each.last is not None), None)


def write_index_file(task: IndexTask, *, count: Callable[[int], None]) -> None:
    """Make one file; what is written is in the page cache on return."""
    path, seed = Path(task.path), _seed_of(task) or Seed(0, 0)
    file = IndexFile.create(
        without_file(path), path, task.shape,
        seed_timestamp_ms=seed.timestamp_ms, seed_commit_offset=seed.commit_offset,
    )  # fmt: skip
    try:
        keys = RunKeys(file.put_until_full, skip=task.skip)
        for piece in task.pieces:
            for records in _records(piece):
                keys.take(records)
        put = max(file.header.next_entry - 1, 0)
    finally:
        file.close()
    if put != task.key_count:
        raise PipelineError(
            f"{task.path}: {put} keys, {task.key_count} counted before; the log was changed while"
            " its index was rebuilt"
        )
    count(sum(piece.cost for piece in task.pieces))


def _seed_of(task: IndexTask) -> Seed | None:
    """Return the last key of the file before, which may be in the first piece."""
    left = task.skip
    for piece in task.pieces[:1] if left else ():
        for records in _records(piece):
            for hashes, offsets, times in KeyHasher().of(records):
                if left <= len(hashes):
                    return Seed(int(times[left - 1]), int(offsets[left - 1]))
                left -= len(hashes)
    return task.seed
