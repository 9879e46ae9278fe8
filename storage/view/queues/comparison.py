"""Units of queues compared with the records of a range of the log, for doctor, scrub and Spark's audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.names import OFFSET_LIMIT
from storage.kernels.columns import STORE_TIMESTAMP
from storage.view.incarnations import Incarnations
from storage.view.log.walk import RANGE_ROWS_MAX, DamagedRange, RecordRun
from storage.view.queues.record_queues import QueueKey, QueueRun, consecutive, runs_of
from storage.view.queues.units import UNIT_DTYPE, UnitBuilder, Units, as_units, same_units

Longs = npt.NDArray[np.int64]
ReadUnits = Callable[[int, int], Units]
"""Returns so many units from a queue offset on."""


class UnitRange(NamedTuple):
    """Queue offsets ``[begin, end)`` whose units are all missing, or all not what their records say.

    ``commit_offset`` is that of the first record.
    """

    begin: int
    end: int
    is_missing: bool
    commit_offset: int


def live_units(
    builder: UnitBuilder,
    records: RecordRun,
    topics: Incarnations,
    forgotten: set[str] | None = None,
) -> Iterator[tuple[QueueKey, Units, Longs]]:
    """Yield the units of the records of a run that count, by queue, with the queue offsets they say.

    The arrays are good until the builder builds again. ``forgotten`` takes the topics whose records count
    nowhere.
    """
    for topic, queue_id, units, queue_offsets in builder.build(
        records.data, records.rows, len(records.rows), records.data_offset
    ):
        alive, since = as_units(units), topics.of(topic)
        if topics.is_forgotten(topic) and forgotten is not None:
            forgotten.add(topic)
        if not topics.has_queue(topic, queue_id):
            continue
        if since:
            counts = alive["offset"] >= since
            alive, queue_offsets = alive[counts], queue_offsets[counts]
        if len(alive):
            yield (topic, queue_id), alive, queue_offsets


def wrong_units(held: ReadUnits, units: Units, queue_offsets: Longs) -> Iterator[UnitRange]:
    """Yield the units of a queue that are missing, or not those which records say."""
    for begin, end in consecutive(queue_offsets) if len(units) else ():
        first = int(queue_offsets[begin])
        there = np.zeros(end - begin, UNIT_DTYPE)
        if 0 <= first < OFFSET_LIMIT // UNIT_DTYPE.itemsize:
            there = held(first, end - begin)
        yield from differences(first, there, units[begin:end])


def differences(queue_offset: int, held: Units, wanted: Units) -> Iterator[UnitRange]:
    """Yield where the units from a queue offset on differ."""
    if held.tobytes() == wanted.tobytes():
        return
    wrong = np.flatnonzero(~same_units(held, wanted))
    missing = held["size"][wrong] == 0
    breaks = np.flatnonzero((np.diff(wrong) != 1) | (np.diff(missing) != 0)) + 1
    for first, last in zip([0, *breaks], [*(breaks - 1), len(wrong) - 1], strict=True):
        if first <= last:
            begin, end = int(wrong[first]), int(wrong[last]) + 1
            yield UnitRange(
                queue_offset + begin, queue_offset + end, bool(missing[first]),
                int(wanted["offset"][begin]),
            )  # fmt: skip


@dataclass(slots=True)
class RangeCheck:
    """What a walk of a range of the log met, and which units are not as its records say."""

    record_count: int = 0
    last_timestamp_ms: int = 0
    damage: list[DamagedRange] = field(default_factory=list)
    runs: dict[QueueKey, list[QueueRun]] = field(default_factory=dict)
    wrong: dict[QueueKey, list[UnitRange]] = field(default_factory=dict)

    def add(self, following: RangeCheck) -> None:
        """Add what was met in the range after this one."""
        self.record_count += following.record_count
        self.last_timestamp_ms = following.last_timestamp_ms or self.last_timestamp_ms
        self.damage += following.damage
        for key, runs in following.runs.items():
            self._add_runs(key, runs)
        for key, wrong in following.wrong.items():
            self.wrong.setdefault(key, []).extend(wrong)

    def _add_runs(self, key: QueueKey, following: Iterable[QueueRun]) -> None:
        """Add runs of a queue, with those made one that go on from each other."""
        runs = self.runs.setdefault(key, [])
        for run in following:
            if runs and runs[-1].end == run.begin:
                last = runs.pop()
                run = last._replace(end=run.end, last_commit_offset=run.last_commit_offset)
            runs.append(run)

    def take(
        self,
        records: RecordRun,
        builder: UnitBuilder,
        held: Callable[[QueueKey], ReadUnits],
        topics: Incarnations,
        end_offset: int,
    ) -> None:
        """Compare the units of a run of records, as far as they are below a commit offset."""
        for key, units, queue_offsets in self.units_of(records, builder, topics, end_offset):
            found = list(wrong_units(held(key), units, queue_offsets))
            if found:
                self.wrong.setdefault(key, []).extend(found)

    def units_of(
        self, records: RecordRun, builder: UnitBuilder, topics: Incarnations, end_offset: int
    ) -> Iterator[tuple[QueueKey, Units, Longs]]:
        """Note a run of records, and yield what ``live_units`` does of those below a commit offset."""
        self.record_count += len(records.rows)
        self.last_timestamp_ms = int(records.rows[-1, STORE_TIMESTAMP])
        for key, units, queue_offsets in live_units(builder, records, topics):
            count = int(np.searchsorted(units["offset"].astype(np.int64), end_offset))
            if count:
                units, queue_offsets = units[:count], queue_offsets[:count]
                self._add_runs(key, runs_of(key, units, queue_offsets))
                yield key, units, queue_offsets


def check_range(
    steps: Iterable[RecordRun | DamagedRange],
    held: Callable[[QueueKey], ReadUnits],
    topics: Incarnations,
    end_offset: int,
) -> RangeCheck:
    """Compare the records of a walk with the units that queues hold; those from ``end_offset`` on are counted only."""
    check, builder = RangeCheck(), UnitBuilder(RANGE_ROWS_MAX)
    for step in steps:
        if isinstance(step, DamagedRange):
            check.damage.append(step)
        else:
            check.take(step, builder, held, topics, end_offset)
    return check
