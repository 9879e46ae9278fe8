"""The job ``audit``: log, queues and index of a store compared with each other, every checksum.

One walk of the log does it: each record must be whole, the unit at its queue offset must be what
dispatch would write, and its keys must be the entries of the index in that range. Units and entries
that no record accounts for are named too, and the chains of index files are followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.index_files import index_entries, list_index_files, slot_count_of
from pipeline.places import file_name_of, map_file, place_of
from pipeline.plan import LogPiece, QueueKey, StorePlan
from pipeline.queue_files import QueueFiles
from pipeline.runs import PieceResult, QueueRun, by_queue, steps_of, units_of_piece
from pipeline.store_files import QUEUE_DIRECTORY, StoreFiles
from pipeline.walk import Hole
from storage.format.consume_entry import PREFILL_SIZE
from storage.format.index import HEADER_SIZE, SLOT_SIZE
from storage.kernels.index import KEYS_OF_A_RECORD_MAX, NO_KEY, key_hashes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_BYTES: Final = 64 << 20
FINDINGS_MAX: Final = 1000  # named by one task; more are counted
EXTENSION_ADDRESS_MAX: Final = -(1 << 31) - 1
Finding = dict[str, Any]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit of one store found; ``findings`` is empty for a store in order."""

    store: str
    log_bytes: int
    records: int
    units: int
    keys: int
    findings: tuple[Finding, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file as tasks need it; entries lie in the log's order."""

    path: str
    slot_count: int
    begin_offset: int
    end_offset: int


def audit(spark: SparkSession, store: str | Path, *, piece_bytes: int = PIECE_BYTES) -> AuditReport:
    """Compare everything in a store with everything else; nothing is written.

    A store may be in use: what its writer had not confirmed, its queues did not cover or its index had
    not reached when the audit began does not count. Raises NotAStore.
    """
    began = perf_counter()
    files = StoreFiles.open(store)
    plan = StorePlan(files)
    low, high, queued = plan.bounds
    index = [_index_file(files, path) for path in list_index_files(files)]
    shapeless = [file for file in index if not file.slot_count]
    index = [file for file in index if file.end_offset]
    pieces = list(plan.log_pieces(low, high, piece_bytes, None))
    context = spark.sparkContext
    check = partial(_audit_piece, index=index, queued_offset=queued)
    results: list[PieceResult] = (
        context.parallelize(pieces, max(1, len(pieces))).map(check).collect()
    )
    chains: list[list[Finding]] = (
        context.parallelize(index, max(1, len(index))).map(_audit_index_file).collect()
        if index
        else []
    )
    runs = by_queue(results)
    holes = [hole for result in results for hole in result.holes]
    findings = [finding for result in results for finding in result.findings]
    findings += _unaccounted_units(plan, runs, holes)
    findings += [finding for found in chains for finding in found]
    findings += [
        {
            "kind": "index",
            "file": file_name_of(file.path),
            "problem": "no number of slots fits its length and entries",
        }
        for file in shapeless
        if map_file(file.path, 0, HEADER_SIZE)[:HEADER_SIZE].any()
    ]
    return AuditReport(
        store=str(store),
        log_bytes=sum(piece.cost for piece in pieces),
        records=sum(result.records for result in results),
        units=sum(run.end - run.begin for found in runs.values() for run in found),
        keys=sum(result.keys for result in results),
        findings=tuple(findings),
        seconds=perf_counter() - began,
    )


def _index_file(store: StoreFiles, path: str) -> IndexFile:
    slot_count = slot_count_of(store, path)
    header, entries = index_entries(path, slot_count)
    if not len(entries):
        return IndexFile(path, slot_count, 0, 0)
    return IndexFile(path, slot_count, header.begin_commit_offset, header.end_commit_offset)


def _audit_piece(piece: LogPiece, *, index: list[IndexFile], queued_offset: int) -> PieceResult:
    result = PieceResult()
    by_key = units_of_piece(piece, result)
    for hole in result.holes:
        result.findings.append(
            {
                "kind": "record",
                "physicalOffset": hole.begin,
                "size": hole.end - hole.begin,
                "problem": hole.reason,
            }
        )
    for key, (units, offsets) in by_key.items():
        queued = units["offset"] < queued_offset
        result.findings += _compare_units(piece, key, units[queued], offsets[queued])
    result.findings += _compare_index(piece, index, result)
    dropped = len(result.findings) - FINDINGS_MAX
    if dropped > 0:
        result.findings[FINDINGS_MAX:] = [
            {"kind": "more", "physicalOffset": piece.begin, "problem": f"{dropped} more not named"}
        ]
    return result


def _compare_units(
    piece: LogPiece, key: QueueKey, units: npt.NDArray[Any], offsets: Longs
) -> list[Finding]:
    if not len(units):
        return []
    directory = place_of(piece.store) / QUEUE_DIRECTORY / key[0] / str(key[1])
    queue = QueueFiles.open(directory, 0, 0)
    low, high = int(offsets.min()), int(offsets.max()) + 1
    held = np.zeros(high - low, units.dtype)
    found = queue.units(low, high - low)
    held[: len(found)] = found
    held = held[offsets - low]
    same = (held["offset"] == units["offset"]) & (held["size"] == units["size"])
    same &= (held["tag"] == units["tag"]) | (held["tag"] <= EXTENSION_ADDRESS_MAX)
    return [
        {
            "kind": "unit",
            "topic": key[0],
            "queueId": key[1],
            "queueOffset": int(offsets[place]),
            "physicalOffset": int(units["offset"][place]),
            "problem": "missing"
            if not held["size"][place]
            else f"holds {held[place].item()}, not {units[place].item()}",
        }
        for place in np.flatnonzero(~same)[: FINDINGS_MAX + 1].tolist()
    ]


def _keys_of(piece: LogPiece) -> tuple[Longs, Longs]:
    """Return commit offset and hash of every key of a piece, in the index's order."""
    offsets, hashes, times = np.empty((3, max(1 << 17, KEYS_OF_A_RECORD_MAX)), np.int64)
    parts: list[tuple[Longs, Longs]] = []
    for data, rows in steps_of(piece):
        if isinstance(rows, Hole):
            continue
        row = 0
        while row < len(rows):
            count, row = key_hashes(
                data, rows, row, len(rows), piece.file_start, hashes, offsets, times
            )
            kept = hashes[:count] != NO_KEY
            parts.append((offsets[:count][kept], hashes[:count][kept]))
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _compare_index(
    piece: LogPiece, index: list[IndexFile], result: PieceResult
) -> Iterator[Finding]:
    if not index:
        return
    covered = index[0].begin_offset, index[-1].end_offset  # a record at the end may be half put
    low, high = max(piece.begin, covered[0]), min(piece.end, covered[1])
    if low >= high:
        return
    offsets, hashes = _keys_of(piece)
    mine = (offsets >= low) & (offsets < high)
    offsets, hashes = offsets[mine], hashes[mine]
    result.keys += len(offsets)
    parts = [_entries_between(file, low, high) for file in index]
    held_offsets = np.concatenate([part[0] for part in parts])
    held_hashes = np.concatenate([part[1] for part in parts])
    if np.array_equal(offsets, held_offsets) and np.array_equal(hashes, held_hashes):
        return
    ours = set(zip(offsets.tolist(), hashes.tolist(), strict=True))
    theirs = set(zip(held_offsets.tolist(), held_hashes.tolist(), strict=True))
    for offset, hashed in sorted(ours - theirs):
        yield {
            "kind": "index",
            "physicalOffset": offset,
            "problem": f"no entry for a key of the record (hash {hashed})",
        }
    for offset, hashed in sorted(theirs - ours):
        yield {
            "kind": "index",
            "physicalOffset": offset,
            "problem": f"an entry (hash {hashed}) for which there is no key at that offset",
        }


def _entries_between(file: IndexFile, low: int, high: int) -> tuple[Longs, Longs]:
    _, entries = index_entries(file.path, file.slot_count)
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


def _audit_index_file(file: IndexFile) -> list[Finding]:
    """Check that slots lead to their newest entries, and entries to the one before in their slot."""
    header, entries = index_entries(file.path, file.slot_count)
    data = map_file(file.path)
    slots = np.frombuffer(
        data[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE * file.slot_count], ">i4"
    ).astype(np.int64)
    slot_of = (entries["hash"].astype(np.int64) & 0x7FFFFFFF) % file.slot_count
    order = np.argsort(slot_of, kind="stable")
    ordered = slot_of[order]
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    last = np.concatenate((first[1:], [True]))
    previous = np.empty(len(entries), np.int64)
    previous[order] = np.where(first, 0, np.concatenate(([0], order[:-1])) + 1)
    newest = np.zeros(file.slot_count, np.int64)
    newest[ordered[last]] = order[last] + 1
    name = file_name_of(file.path)
    findings: list[Finding] = [
        {
            "kind": "index",
            "file": name,
            "problem": f"slot {slot} leads to entry {slots[slot]}, not {newest[slot]}",
        }
        for slot in np.flatnonzero(newest != slots)[:FINDINGS_MAX].tolist()
    ]
    findings += [
        {
            "kind": "index",
            "file": name,
            "physicalOffset": int(entries["offset"][place]),
            "problem": f"entry {place + 1} leads to {entries['previous'][place]},"
            f" not {previous[place]}",
        }
        for place in np.flatnonzero(entries["previous"] != previous)[:FINDINGS_MAX].tolist()
    ]
    used = int(np.count_nonzero(newest))
    if header.used_slot_count != used:
        findings.append(
            {
                "kind": "index",
                "file": name,
                "problem": f"the header counts {header.used_slot_count} slots in use, not {used}",
            }
        )
    return findings


def _unaccounted_units(
    plan: StorePlan, runs: dict[QueueKey, list[QueueRun]], holes: list[Hole]
) -> Iterator[Finding]:
    """Name the units that no intact record put there."""
    for key, queue in plan.queues.items():
        at = queue.files.begin
        named = 0
        for begin, end in _uncovered(runs.get(key, []), at, queue.files.end):
            units = queue.files.units(begin, min(end - begin, FINDINGS_MAX))
            for place, unit in enumerate(units):
                offset, size, _ = unit.item()
                if (offset == 0 and size == PREFILL_SIZE) or named > FINDINGS_MAX:
                    continue
                named += 1
                inside = any(hole.begin <= offset < hole.end for hole in holes)
                yield {
                    "kind": "unit",
                    "topic": key[0],
                    "queueId": key[1],
                    "queueOffset": begin + place,
                    "physicalOffset": offset,
                    "problem": "its record is damaged" if inside else "points to no record of it",
                }


def _uncovered(runs: list[QueueRun], begin: int, end: int) -> Iterator[tuple[int, int]]:
    for run in sorted(runs, key=lambda run: run.begin):
        if run.begin > begin:
            yield begin, min(run.begin, end)
        begin = max(begin, run.end)
    if begin < end:
        yield begin, end
