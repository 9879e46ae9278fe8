"""Units of queues compared with the records of a range of the log, for doctor, scrub and Spark's audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.names import OFFSET_LIMIT
from storage.view.live_topics import LiveTopics
from storage.view.log.walk import RecordRun
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.runs import consecutive
from storage.view.queues.units import UNIT_DTYPE, UnitBuilder, Units, as_units, same_units

Longs = npt.NDArray[np.int64]
ReadUnits = Callable[[int, int], Units]
"""Returns up to so many units from a queue offset on."""


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
    topics: LiveTopics,
    forgotten: set[str] | None = None,
) -> Iterator[tuple[QueueKey, Units, Longs]]:
    """Yield the units of the records of a run that count, by queue, with the queue offsets they say.

    The arrays are good until the builder builds again. ``forgotten`` takes the topics whose records count
    nowhere.
    """
    for topic, queue_id, units, queue_offsets in builder.build(
        records.data, records.rows, len(records.rows), records.data_offset
    ):
        alive, since = as_units(units), topics.since(topic)
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
            found = held(first, end - begin)
            there[: len(found)] = found
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
