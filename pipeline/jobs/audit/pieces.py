"""What an audit compares in one walk over a piece of the log: records, their units, their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.files.walk import Hole, walk
from pipeline.jobs.audit.findings import Finding, Findings
from pipeline.jobs.audit.index_entries import (
    EntriesOf,
    IndexToAudit,
    KeyCounts,
    PieceKeys,
    audit_entries,
)
from pipeline.jobs.runs import QueueRun, consecutive, runs_of
from pipeline.jobs.units import QueueUnits, UnitMaker
from pipeline.source.plan import LogPiece, QueueKey
from storage.kernels.columns import STORE_TIMESTAMP
from storage.view.queue_files import QueueFiles, units_in
from storage.view.store_view import StoreView

EXTENSION_ADDRESS_MAX: Final = -(1 << 31) - 1
QUEUE_OFFSET_MAX: Final = 1 << 58  # times the size of a unit, it is still a position

Units = npt.NDArray[Any]
Longs = npt.NDArray[np.int64]
QueueOf = Callable[[StoreView, QueueKey], QueueFiles]


@dataclass(frozen=True, slots=True)
class StoreToAudit:
    """What tasks know of a store: how far its queues go, which topics were deleted, its index.

    ``index`` is None if the index is not to be looked at.
    """

    store: StoreView
    queued_offset: int
    deleted_topics: Mapping[str, int]
    index: IndexToAudit | None


@dataclass
class PieceAudit:
    """What one piece holds, for the driver to put together."""

    store: str
    cost: int  # bytes
    records: int = 0
    keys: KeyCounts = field(default_factory=KeyCounts)
    newest_timestamp_ms: int = 0
    runs: list[QueueRun] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)


@dataclass
class _Seen:
    """Everything of one piece, in the log's order."""

    units: dict[QueueKey, list[QueueUnits]] = field(default_factory=dict)
    keys: PieceKeys | None = None


def audit_piece(
    piece: LogPiece,
    store: StoreToAudit,
    queue_of: QueueOf,
    entries_of: EntriesOf,
    findings: Findings,
) -> PieceAudit:
    """Walk a piece once and compare what it holds with the queues and the index.

    ``queue_of`` gives a store's queue, ``entries_of`` the entries of an index file; both as they were
    no earlier than the bounds in ``store``.
    """
    audit = PieceAudit(str(piece.store), piece.cost)
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
    if seen.keys is not None and store.index is not None:
        audit.keys = audit_entries(
            piece, store.index, seen.keys.arrays(), audit.holes, entries_of, findings
        )
    return audit


def _walk(piece: LogPiece, audit: PieceAudit, *, with_keys: bool) -> _Seen:
    seen = _Seen(keys=PieceKeys() if with_keys else None)
    data = piece.data()
    maker = UnitMaker()
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
        if seen.keys is not None:
            seen.keys.take(data, rows, piece.file_start)
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
