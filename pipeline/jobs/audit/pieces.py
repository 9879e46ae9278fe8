"""What an audit compares in one walk over a piece of the log: records, their units, their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.jobs.audit.findings import Finding, Findings, damaged_range
from pipeline.jobs.audit.index_entries import (
    EntriesOf,
    IndexToAudit,
    KeyCounts,
    PieceKeys,
    audit_entries,
)
from pipeline.jobs.runs import PieceResult, units_of_piece
from storage.kernels.columns import STORE_TIMESTAMP
from storage.view.live_topics import LiveTopics
from storage.view.log.walk import RecordRun
from storage.view.pieces import LogPiece
from storage.view.queues.held_units import QUEUE_OFFSET_LIMIT
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.runs import consecutive
from storage.view.queues.units import same_units
from storage.view.store_view import StoreView

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
    result: PieceResult = field(default_factory=PieceResult)
    keys: KeyCounts = field(default_factory=KeyCounts)
    newest_timestamp_ms: int = 0


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
    audit, keys = PieceAudit(str(piece.store), piece.cost), PieceKeys()

    def take(records: RecordRun) -> None:
        newest = int(records.rows[:, STORE_TIMESTAMP].max())
        audit.newest_timestamp_ms = max(audit.newest_timestamp_ms, newest)
        if store.index is not None:
            keys.take(records)

    units_of = units_of_piece(
        piece, audit.result, topics=LiveTopics(store.deleted_topics), take=take
    )
    damage = audit.result.damage
    findings.add(map(damaged_range, damage))
    for key, (units, offsets) in units_of.items():
        queued = int(np.count_nonzero(units["offset"] < store.queued_offset))
        queue = queue_of(piece.store, key)
        _compare_queue(key, queue, units[:queued], offsets[:queued], findings)
    if store.index is not None:
        audit.keys = audit_entries(piece, store.index, keys.arrays(), damage, entries_of, findings)
    return audit


def _compare_queue(
    key: QueueKey, queue: QueueFiles, units: Units, offsets: Longs, findings: Findings
) -> None:
    for begin, end in consecutive(offsets) if len(offsets) else ():
        first = int(offsets[begin])
        held = np.zeros(end - begin, units.dtype)
        if 0 <= first < QUEUE_OFFSET_LIMIT:
            found = queue.units(first, end - begin)
            held[: len(found)] = found
        bad = np.flatnonzero(~same_units(held, units[begin:end]))
        if len(bad):
            findings.add(_wrong_units(key, first, held, units[begin:end], bad), len(bad))


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
