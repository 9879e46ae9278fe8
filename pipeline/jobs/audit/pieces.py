"""What an audit compares in one walk over a piece of the log: records, their units, their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

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
from storage.view.queues.comparison import UnitRange, wrong_units
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.record_queues import QueueKey
from storage.view.store_view import StoreView

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
        held = queue_of(piece.store, key).units
        for wrong in wrong_units(held, units[:queued], offsets[:queued]):
            findings.add([_wrong_units(key, wrong)])
    if store.index is not None:
        audit.keys = audit_entries(piece, store.index, keys.arrays(), damage, entries_of, findings)
    return audit


def _wrong_units(key: QueueKey, units: UnitRange) -> Finding:
    count = units.end - units.begin
    return {
        "kind": "unit",
        "topic": key[0],
        "queueId": key[1],
        "queueOffset": units.begin,
        "physicalOffset": units.commit_offset,
        **({"count": count} if count > 1 else {}),
        "problem": "missing" if units.is_missing else "not what the record says",
    }
