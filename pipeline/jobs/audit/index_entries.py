"""Entries of the index compared with the keys of the records in one piece of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.jobs.audit.findings import Finding, Findings
from pipeline.jobs.audit.index_files import AuditedIndexFile
from storage.format.index import TIME_DELTA_MAX_S
from storage.view.index.keys import KeyHasher
from storage.view.log.walk import DamagedRange, RecordRun
from storage.view.pieces import LogPiece

Longs = npt.NDArray[np.int64]
Entries = npt.NDArray[Any]
UNKNOWN: Final = np.int64(-1 << 63)
EntriesOf = Callable[[AuditedIndexFile], Entries]


@dataclass(frozen=True, slots=True)
class IndexToAudit:
    """The index files of a store that have entries, oldest first.

    ``indexed_offset`` is up to where every key must be in them, None if nothing says so. In a
    ``live`` index, the record of the last entry may be half put.
    """

    files: Sequence[AuditedIndexFile]
    indexed_offset: int | None
    live: bool


@dataclass(slots=True)
class KeyCounts:
    """How many keys of a piece were compared with the index, and of which kinds some were."""

    compared: int = 0
    doubled: int = 0  # entries too many, of keys that have theirs
    unindexed: int = 0  # before the first entry of the index, or without any
    lost: int = 0  # after the last entry, though the checkpoint says that they are in


class PieceKeys:
    """The keys of one piece, collected in the log's order."""

    def __init__(self) -> None:
        self._hasher = KeyHasher()
        self._parts: list[tuple[Longs, Longs, Longs]] = []

    def take(self, records: RecordRun) -> None:
        """Collect the keys of a run of records."""
        for hashes, offsets, times in self._hasher.of(records):
            self._parts.append((offsets.copy(), hashes.copy(), times.copy()))

    def arrays(self) -> tuple[Longs, Longs, Longs]:
        """Return commit offset, hash and store time of each key."""
        if not self._parts:
            return (np.empty(0, np.int64),) * 3
        offsets, hashes, times = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        return offsets, hashes, times


@dataclass(slots=True)
class _Held:
    """Entries of one file that belong to a piece, as native numbers."""

    file: AuditedIndexFile
    first: int  # number of the first of them
    offsets: Longs
    hashes: Longs
    deltas_s: Longs


def audit_entries(
    piece: LogPiece,
    index: IndexToAudit,
    keys: tuple[Longs, Longs, Longs],
    damage: Sequence[DamagedRange],
    entries_of: EntriesOf,
    findings: Findings,
) -> KeyCounts:
    """Name entries that a key lacks, that no key has, and that hold a wrong time."""
    offsets, hashes, times = keys
    counts = KeyCounts()
    if not index.files:
        due = index.indexed_offset
        counts.unindexed = len(offsets) if due is None else int(np.searchsorted(offsets, due))
        return counts
    first, last = index.files[0].begin_offset, index.files[-1].end_offset
    counts.unindexed = int(np.count_nonzero(offsets < first))
    end = max(last if index.live else last + 1, index.indexed_offset or 0)
    low, high = max(piece.begin, first), min(piece.end, end)
    if low >= high:
        return counts
    held = [
        _held(file, entries_of(file), low, high, live=index.live and file is index.files[-1])
        for file in index.files
        if file.begin_offset < high and file.end_offset >= low
    ]
    is_first_key = piece.begin == 0 and len(offsets) > 0 and int(offsets[0]) == first
    mine = slice(*np.searchsorted(offsets, (low, high)).tolist())
    offsets, hashes, times = offsets[mine], hashes[mine], times[mine]
    counts.compared = len(offsets)
    held_offsets = np.concatenate([part.offsets for part in held] or [offsets[:0]])
    held_hashes = np.concatenate([part.hashes for part in held] or [hashes[:0]])
    if not (np.array_equal(offsets, held_offsets) and np.array_equal(hashes, held_hashes)):
        wanted, found = _pairs(offsets, hashes), _pairs(held_offsets, held_hashes)
        sure_offset = index.indexed_offset or 0
        _name_differences(wanted, found, last, sure_offset, damage, counts, findings)
        times = _times_of(held_offsets, offsets, times)
    ends = np.cumsum([len(part.offsets) for part in held]).tolist()
    for part, end in zip(held, ends, strict=True):
        part_times = times[end - len(part.offsets) : end]
        _name_wrong_times(part, part_times, is_first_key=is_first_key, findings=findings)
    return counts


def _times_of(held_offsets: Longs, offsets: Longs, times: Longs) -> Longs:
    """Return the store times of the records at the entries' offsets, UNKNOWN where there is no record."""
    if not len(offsets):
        return np.full(len(held_offsets), UNKNOWN)
    place = np.minimum(np.searchsorted(offsets, held_offsets), len(offsets) - 1)
    return np.where(offsets[place] == held_offsets, times[place], UNKNOWN)


def _held(file: AuditedIndexFile, entries: Entries, low: int, high: int, *, live: bool) -> _Held:
    """Return the entries of a file that stand where those of ``[low, high)`` belong.

    All before and after go to the pieces at the file's ends, whatever offsets they name.
    """
    found = entries["offset"]
    begin = 0 if low <= file.begin_offset else _first_from(found, low)
    end = len(found) if file.end_offset < high and not live else _first_from(found, high)
    mine = entries[begin:end]
    return _Held(
        file,
        begin + 1,
        mine["offset"].astype(np.int64),
        mine["hash"].astype(np.int64),
        mine["delta"].astype(np.int64),
    )


def _first_from(offsets: npt.NDArray[Any], offset: int) -> int:
    """Return where the entries begin that are not below ``offset``; one wrong offset leads nowhere.

    With each offset replaced by the median of itself and its neighbours they ascend, whatever one
    of them is.
    """
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) // 2
        around = sorted(offsets[max(0, middle - 1) : middle + 2].tolist())
        median = around[1] if len(around) == 3 else around[0 if middle == 0 else -1]
        if median < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _pairs(offsets: Longs, hashes: Longs) -> npt.NDArray[Any]:
    pairs = np.empty(len(offsets), [("offset", np.int64), ("hash", np.int64)])
    pairs["offset"], pairs["hash"] = offsets, hashes
    return pairs


def _name_differences(
    keys: npt.NDArray[Any],
    entries: npt.NDArray[Any],
    last: int,
    sure_offset: int,
    damage: Sequence[DamagedRange],
    counts: KeyCounts,
    findings: Findings,
) -> None:
    # A record may hold a key twice, and then has two entries: how many there are of each counts.
    pairs, which = np.unique(np.concatenate([keys, entries]), return_inverse=True)
    wanted = np.bincount(which[: len(keys)], minlength=len(pairs))
    held = np.bincount(which[len(keys) :], minlength=len(pairs))
    missing = held < wanted
    after = missing & (pairs["offset"] >= last)
    counts.lost = int((wanted - held)[after & (pairs["offset"] < sure_offset)].sum())
    counts.doubled = int((held - wanted)[(held > wanted) & (wanted > 0)].sum())
    gone, extra = pairs[missing & ~after], pairs[(held > 0) & (wanted == 0)]
    damaged = np.zeros(len(extra), np.bool_)
    for each in damage:
        damaged |= (extra["offset"] >= each.begin_offset) & (extra["offset"] < each.end_offset)
    for found, problem in (
        (gone, "no entry for a key of the record (hash {})"),
        (extra[damaged], "an entry (hash {}) whose record is damaged"),
        (extra[~damaged], "an entry (hash {}) for which there is no key at that offset"),
    ):
        findings.add(_differences(found, problem), len(found))


def _differences(pairs: npt.NDArray[Any], problem: str) -> Iterator[Finding]:
    for pair in pairs:
        offset, hashed = pair.item()
        yield {"kind": "index", "physicalOffset": offset, "problem": problem.format(hashed)}


def _name_wrong_times(held: _Held, times: Longs, *, is_first_key: bool, findings: Findings) -> None:
    """Name entries whose time difference is not that of their record; others are named before.

    Entry 1 holds its time against the end of the file before. Of the first file that is left nobody
    knows it, unless its first key is the log's first: then there was no file before.
    """
    known = times != UNKNOWN
    wanted = _time_deltas(times, held.file.begin_timestamp_ms)
    wrong = known & (held.deltas_s != wanted)
    if held.first == 1 and len(wrong) and known[0]:
        seed = held.file.seed_timestamp_ms
        if seed is None and is_first_key:
            seed = 0
        if seed is None:
            wrong[0] = held.deltas_s[0] < 0
        else:
            wanted[0] = _time_deltas(times[:1], seed)[0]
            wrong[0] = held.deltas_s[0] != wanted[0]
    bad = np.flatnonzero(wrong)
    findings.add(_wrong_times(held, wanted, bad), len(bad))


def _time_deltas(times: Longs, begin_timestamp_ms: int) -> Longs:
    if begin_timestamp_ms <= 0:
        return np.zeros(len(times), np.int64)
    return np.clip((times - begin_timestamp_ms) // 1000, 0, TIME_DELTA_MAX_S)


def _wrong_times(held: _Held, wanted: Longs, bad: Longs) -> Iterator[Finding]:
    for at in bad.tolist():
        yield {
            "kind": "index",
            "file": held.file.name,
            "physicalOffset": int(held.offsets[at]),
            "problem": f"entry {held.first + at} is {held.deltas_s[at]} s after the file's begin,"
            f" not {wanted[at]}",
        }
