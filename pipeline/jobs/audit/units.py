"""Units that no record of the log accounts for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.jobs.audit.findings import Finding, Findings
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.view.queues.comparison import uncovered

if TYPE_CHECKING:
    from storage.view.log.walk import DamagedRange
    from storage.view.queues.record_queues import QueueKey
    from storage.view.queues.runs import QueueRun
    from storage.view.store_plan import Queue, StorePlan

CHUNK: Final = 1 << 20


def unaccounted_units(
    plan: StorePlan,
    runs: dict[QueueKey, list[QueueRun]],
    damage: Sequence[DamagedRange],
    findings: Findings,
    *,
    at_rest: bool,
) -> None:
    """Name units that no intact record put there; ``at_rest``, also those after the queues' ends."""
    begins = np.array(sorted(each.begin_offset for each in damage), np.int64)
    ends = np.array(sorted(each.end_offset for each in damage), np.int64)
    for key, queue in plan.queues.items():
        mine = runs.get(key, [])
        for begin, end in uncovered(mine, queue.files.begin, queue.files.end):
            for at in range(begin, end, CHUNK):
                units = queue.files.units(at, min(CHUNK, end - at))
                placed = (units["offset"] == 0) & (units["size"] == PREFILL_SIZE)
                bad = np.flatnonzero(~placed)
                findings.add(_units(key, at, units, bad, begins, ends), len(bad))
        if at_rest and queue.files.files:
            _after_the_end(queue, findings)


def _units(
    key: QueueKey,
    first: int,
    units: npt.NDArray[Any],
    bad: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> Iterator[Finding]:
    for place in bad.tolist():
        offset = int(units["offset"][place])
        at = int(np.searchsorted(begins, offset, side="right")) - 1
        inside = at >= 0 and offset < ends[at]
        yield {
            "kind": "unit",
            "topic": key[0],
            "queueId": key[1],
            "queueOffset": first + place,
            "physicalOffset": offset,
            "problem": "its record is damaged" if inside else "points to no record of it",
        }


def _after_the_end(queue: Queue, findings: Findings) -> None:
    end = queue.files.files[-1].end_offset // UNIT_SIZE
    for at in range(queue.files.end, end, CHUNK):
        units = queue.files.units(at, min(CHUNK, end - at))
        written = np.flatnonzero((units["offset"] != 0) | (units["size"] != 0))
        findings.add(_beyond(queue, at, units, written), len(written))


def _beyond(
    queue: Queue, first: int, units: npt.NDArray[Any], written: npt.NDArray[np.int64]
) -> Iterator[Finding]:
    for place in written.tolist():
        torn = int(units["size"][place]) == 0
        yield {
            "kind": "unit",
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "queueOffset": first + place,
            "physicalOffset": int(units["offset"][place]),
            "problem": "torn" if torn else "points after the end of the log",
        }
