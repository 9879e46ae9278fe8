"""Records of one queue by a list of queue offsets, proved as those of a pull are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import QueueRebuilding
from storage.kernels import pull as kernels
from storage.kernels import unit_record as states
from storage.message import Damage
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.pull import damage_of
from storage.view.queues.pulled_records import PulledRecords
from storage.view.queues.rebuilt_units import RebuiltUnits
from storage.view.queues.tag_filter import MATCH_ALL
from storage.view.queues.unit_search import NO_UNIT
from storage.view.queues.units import as_units

Offsets = npt.NDArray[np.int64]


class RecordsAt(NamedTuple):
    """The first ``looked_at`` of the offsets asked for: their records, joined as a pull's are.

    ``queue_offsets`` and ``commit_offsets`` are those of the records in ``slices``, in order. Of an offset that
    is neither there nor ``damaged`` the record is gone.
    """

    looked_at: int
    queue_offsets: Offsets
    commit_offsets: Offsets
    slices: tuple[memoryview, ...]
    damaged: tuple[Damage, ...]


def records_at(
    log: CommitLogView,
    queue: ConsumeQueueView,
    *,
    topic: str,
    queue_id: int,
    queue_offsets: Offsets,
    max_bytes: int,
) -> RecordsAt:
    """Return the records at ascending queue offsets, as many as ``max_bytes`` has room for, the first always.

    What lies after the queue's end is not looked at: it may be shown later.
    """
    at = int(queue_offsets[-1]) if len(queue_offsets) else 0
    max_offset = queue.max_offset(log.visible_offset, at)
    min_offset = queue.min_offset(log.min_offset, max_offset)
    queue_offsets = queue_offsets[: int(np.searchsorted(queue_offsets, max_offset))]
    chosen = _chosen(queue, queue_offsets, max_offset)
    sizes = np.maximum(chosen[:, kernels.RECORD_SIZE], 0)
    room = int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))
    chosen = chosen[: max(room, 1)]
    records = PulledRecords(log, topic=topic, queue_id=queue_id, tag_filter=MATCH_ALL)
    gone = int(np.searchsorted(queue_offsets[: len(chosen)], min_offset))
    chosen = chosen[gone:]
    settled = _take(records, chosen, queue.rebuilt, max_bytes)
    if settled == 0 and gone == 0 and len(chosen):
        raise QueueRebuilding(topic, queue_id)
    looked_at, chosen = gone + settled, chosen[:settled]
    good = chosen
    damaged: tuple[Damage, ...] = ()
    if records.count != len(chosen):
        good = chosen[chosen[:, kernels.STATE] == states.GOOD]
        bad = chosen[chosen[:, kernels.STATE] >= states.DAMAGED]
        damaged = tuple(damage_of(row, queue_id) for row in bad.tolist())
    return RecordsAt(
        looked_at,
        np.ascontiguousarray(good[:, kernels.QUEUE_OFFSET]),
        np.ascontiguousarray(good[:, kernels.COMMIT_OFFSET]),
        records.slices(),
        damaged,
    )


def _take(
    records: PulledRecords, chosen: npt.NDArray[np.int64], rebuilt: RebuiltUnits, max_bytes: int
) -> int:
    """Take records, and rebuild the units that they do not confirm; return how many were settled.

    Fewer before a unit that the writer is to rebuild, and where there is no room for a rebuilt one.
    """
    done = 0
    while True:
        done += records.take(chosen[done:], rebuilt=False)
        if done == len(chosen):
            return done
        row = chosen[done : done + 1]
        try:
            unit = rebuilt.unit(int(row[0, kernels.QUEUE_OFFSET])) or NO_UNIT
        except QueueRebuilding:
            return done
        if records.count and records.byte_count + unit.size > max_bytes:
            return done
        row[0, kernels.COMMIT_OFFSET], row[0, kernels.RECORD_SIZE] = unit.commit_offset, unit.size
        row[0, kernels.STATE] = kernels.SUSPECT
        done += records.take(row, rebuilt=True)


def _chosen(
    queue: ConsumeQueueView, queue_offsets: Offsets, max_offset: int
) -> npt.NDArray[np.int64]:
    """Return a table of chosen units; SUSPECT where no file has the unit."""
    chosen = kernels.new_chosen(len(queue_offsets))
    chosen[:, kernels.QUEUE_OFFSET] = queue_offsets
    chosen[:, kernels.COMMIT_OFFSET] = -1
    chosen[:, kernels.RECORD_SIZE] = 0
    chosen[:, kernels.STATE] = kernels.SUSPECT
    at = 0
    while at < len(chosen):
        span = queue.span(int(queue_offsets[at]), max_offset)
        if span is None:
            at += 1
            continue
        end = at + int(np.searchsorted(queue_offsets[at:], span.first_queue_offset + span.end))
        found = as_units(span.array)[queue_offsets[at:end] - span.first_queue_offset]
        chosen[at:end, kernels.COMMIT_OFFSET] = found["offset"]
        chosen[at:end, kernels.RECORD_SIZE] = found["size"]
        sound = (found["offset"] >= 0) & (found["size"] > 0)
        chosen[at:end, kernels.STATE] = np.where(sound, states.CHOSEN, kernels.SUSPECT)
        at = end
    return chosen
