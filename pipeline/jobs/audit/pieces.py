"""What an audit compares in one walk over a piece of the log: records, their units, their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.files.queue_files import QueueFiles
from pipeline.files.store_files import map_file, units_in
from pipeline.files.walk import Hole, walk
from pipeline.jobs.audit.findings import Finding, Findings
from pipeline.jobs.runs import QueueRun, consecutive, runs_of
from pipeline.jobs.units import QueueUnits, UnitMaker
from pipeline.source.plan import LogPiece, QueueKey
from storage.format.index import IndexHeader
from storage.kernels.columns import STORE_TIMESTAMP
from storage.kernels.index import KEYS_OF_A_RECORD_MAX, NO_KEY, key_hashes

EXTENSION_ADDRESS_MAX: Final = -(1 << 31) - 1
QUEUE_OFFSET_MAX: Final = 1 << 58  # times the size of a unit, it is still a position
KEYS_AT_ONCE: Final = 4 * KEYS_OF_A_RECORD_MAX

Units = npt.NDArray[Any]
Longs = npt.NDArray[np.int64]
QueueOf = Callable[[str, QueueKey], QueueFiles]
EntriesOf = Callable[[str, int], tuple[IndexHeader, npt.NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file as tasks need it; entries lie in the log's order. Both -1 without entries."""

    path: str
    slot_count: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class StoreToAudit:
    """What tasks know of a store: how far its queues go, which topics were deleted, its index.

    ``indexed_offset`` is up to where every key must be in the index, None if nothing says so.
    """

    name: str
    queued_offset: int
    deleted_topics: Mapping[str, int]
    index: Sequence[IndexFile] | None  # None: not to be looked at
    indexed_offset: int | None


@dataclass
class PieceAudit:
    """What one piece holds, for the driver to put together."""

    store: str
    cost: int  # bytes
    records: int = 0
    keys: int = 0
    doubled_keys: int = 0  # entries too many, of keys that have theirs
    unindexed_keys: int = 0  # before the first entry of the index, or without any
    lost_keys: int = 0  # behind the last entry, though the checkpoint says that they are in
    newest_timestamp_ms: int = 0
    runs: list[QueueRun] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)


@dataclass
class _Seen:
    """Everything of one piece, in the log's order."""

    units: dict[QueueKey, list[QueueUnits]] = field(default_factory=dict)
    key_offsets: list[Longs] = field(default_factory=list)
    key_hashes: list[Longs] = field(default_factory=list)


def audit_piece(
    piece: LogPiece,
    store: StoreToAudit,
    queue_of: QueueOf,
    entries_of: EntriesOf,
    findings: Findings,
) -> PieceAudit:
    """Walk a piece once and compare what it holds with the queues and the index.

    ``queue_of`` gives a store's queue, ``entries_of`` what ``index_entries`` does; both as they were
    no earlier than the bounds in ``store``.
    """
    audit = PieceAudit(piece.store, piece.cost)
    seen = _walk(piece, audit, with_keys=store.index is not None)
    findings.add(
        {
            "kind": "record",
            "physicalOffset": hole.begin,
            "size": hole.end - hole.begin,
            "problem": hole.reason,
        }
        for hole in audit.holes
    )
    for key, parts in seen.units.items():
        # Not np.concatenate: it would turn the big-endian fields into native ones.
        units = units_in(b"".join(part.units.tobytes() for part in parts))
        offsets = np.concatenate([part.queue_offsets for part in parts])
        if key[0] in store.deleted_topics:
            alive = units["offset"] >= store.deleted_topics[key[0]]
            units, offsets = units[alive], offsets[alive]
        if len(units):
            audit.runs += runs_of(key, units, offsets)
            queued = int(np.count_nonzero(units["offset"] < store.queued_offset))
            queue = queue_of(piece.store, key)
            _compare_queue(key, queue, units[:queued], offsets[:queued], findings)
    if seen.key_offsets and store.index is not None:
        _compare_index(piece, store.index, store.indexed_offset, seen, audit, entries_of, findings)
    return audit


def _walk(piece: LogPiece, audit: PieceAudit, *, with_keys: bool) -> _Seen:
    seen = _Seen()
    data = map_file(piece.path, piece.begin - piece.file_start, piece.end - piece.file_start)
    maker = UnitMaker()
    offsets, hashes, times = np.empty((3, KEYS_AT_ONCE if with_keys else 0), np.int64)
    for step in walk(data, piece.file_start, piece.begin, piece.end):
        if isinstance(step, Hole):
            audit.holes.append(step)
            continue
        rows = step.rows
        audit.records += len(rows)
        newest = int(rows[:, STORE_TIMESTAMP].max())
        audit.newest_timestamp_ms = max(audit.newest_timestamp_ms, newest)
        for made in maker.make(data, piece.file_start, rows):
            seen.units.setdefault(made.key, []).append(made)
        row = 0
        while with_keys and row < len(rows):
            count, row = key_hashes(
                data, rows, row, len(rows), piece.file_start, hashes, offsets, times
            )
            kept = hashes[:count] != NO_KEY
            seen.key_offsets.append(offsets[:count][kept])
            seen.key_hashes.append(hashes[:count][kept])
    return seen


def _compare_queue(
    key: QueueKey, queue: QueueFiles, units: Units, offsets: Longs, findings: Findings
) -> None:
    for begin, end in consecutive(offsets) if len(offsets) else ():
        first = int(offsets[begin])
        held = np.zeros(end - begin, units.dtype)
        if 0 <= first < QUEUE_OFFSET_MAX:
            found = queue.units(first, end - begin)
            held[: len(found)] = found
        bad = np.flatnonzero(~is_unit(held, units[begin:end]))
        if len(bad):
            findings.add(_wrong_units(key, first, held, units[begin:end], bad), len(bad))


def is_unit(held: Units, wanted: Units) -> npt.NDArray[np.bool_]:
    """Tell which units are what dispatch writes; a tag code that is an extension's address may be."""
    same = (held["offset"] == wanted["offset"]) & (held["size"] == wanted["size"])
    same &= (held["tag"] == wanted["tag"]) | (held["tag"] <= EXTENSION_ADDRESS_MAX)
    found: npt.NDArray[np.bool_] = same
    return found


def _wrong_units(
    key: QueueKey, first: int, held: Units, wanted: Units, bad: Longs
) -> Iterator[Finding]:
    missing = held["size"][bad] == 0
    where = {"kind": "unit", "topic": key[0], "queueId": key[1]}
    gone = bad[missing]
    for begin, end in consecutive(gone) if len(gone) else ():
        at = int(gone[begin])
        yield {
            **where,
            "queueOffset": first + at,
            "physicalOffset": int(wanted["offset"][at]),
            **({"count": end - begin} if end - begin > 1 else {}),
            "problem": "missing",
        }
    for at in bad[~missing].tolist():
        yield {
            **where,
            "queueOffset": first + at,
            "physicalOffset": int(wanted["offset"][at]),
            "problem": f"holds {held[at].item()}, not {wanted[at].item()}",
        }


def _compare_index(
    piece: LogPiece,
    index: Sequence[IndexFile],
    indexed_offset: int | None,
    seen: _Seen,
    audit: PieceAudit,
    entries_of: EntriesOf,
    findings: Findings,
) -> None:
    offsets, hashes = np.concatenate(seen.key_offsets), np.concatenate(seen.key_hashes)
    if not index:
        due = len(offsets) if indexed_offset is None else np.searchsorted(offsets, indexed_offset)
        audit.unindexed_keys += int(due)
        return
    last = index[-1].end_offset  # a record there may be half put
    covered = index[0].begin_offset, max(last, indexed_offset or 0)
    audit.unindexed_keys += int(np.count_nonzero(offsets < covered[0]))
    low, high = max(piece.begin, covered[0]), min(piece.end, covered[1])
    if low >= high:
        return
    mine = slice(*np.searchsorted(offsets, (low, high)).tolist())
    offsets, hashes = offsets[mine], hashes[mine]
    audit.keys += len(offsets)
    parts = [
        _entries_between(entries_of(file.path, file.slot_count)[1], low, high)
        for file in index
        if file.begin_offset < high and file.end_offset >= low
    ]
    held_offsets = np.concatenate([part[0] for part in parts] or [offsets[:0]])
    held_hashes = np.concatenate([part[1] for part in parts] or [hashes[:0]])
    if np.array_equal(offsets, held_offsets) and np.array_equal(hashes, held_hashes):
        return
    keys, entries = _pairs(offsets, hashes), _pairs(held_offsets, held_hashes)
    # A record may hold a key twice, and then has two entries: how many there are of each counts.
    pairs, which = np.unique(np.concatenate([keys, entries]), return_inverse=True)
    wanted = np.bincount(which[: len(keys)], minlength=len(pairs))
    held = np.bincount(which[len(keys) :], minlength=len(pairs))
    lost = (held < wanted) & (pairs["offset"] >= last)
    audit.lost_keys += int((wanted - held)[lost].sum())
    gone, extra = pairs[(held < wanted) & ~lost], pairs[(held > 0) & (wanted == 0)]
    audit.doubled_keys += int((held - wanted)[(held > wanted) & (wanted > 0)].sum())
    damaged = np.zeros(len(extra), np.bool_)
    for hole in audit.holes:
        damaged |= (extra["offset"] >= hole.begin) & (extra["offset"] < hole.end)
    for found, problem in (
        (gone, "no entry for a key of the record (hash {})"),
        (extra[damaged], "an entry (hash {}) whose record is damaged"),
        (extra[~damaged], "an entry (hash {}) for which there is no key at that offset"),
    ):
        findings.add(_of_index(found, problem), len(found))


def _pairs(offsets: Longs, hashes: Longs) -> npt.NDArray[Any]:
    pairs = np.empty(len(offsets), [("offset", np.int64), ("hash", np.int64)])
    pairs["offset"], pairs["hash"] = offsets, hashes
    return pairs


def _of_index(pairs: npt.NDArray[Any], problem: str) -> Iterator[Finding]:
    for pair in pairs:
        offset, hashed = pair.item()
        yield {"kind": "index", "physicalOffset": offset, "problem": problem.format(hashed)}


def _entries_between(entries: npt.NDArray[Any], low: int, high: int) -> tuple[Longs, Longs]:
    begin, end = (_first_at(entries, offset) for offset in (low, high))
    mine = entries[begin:end]
    return mine["offset"].astype(np.int64), mine["hash"].astype(np.int64)


def _first_at(entries: npt.NDArray[Any], offset: int) -> int:
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if int(entries[middle]["offset"]) < offset:
            low = middle + 1
        else:
            high = middle
    return low
