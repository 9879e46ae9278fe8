"""From records to consume queue units: what one run of records adds to which queues.

Batches are grouped and built by kernels. Two kinds of records are rare and handled one by one: those
parked in the delay topic, whose tag code is their delivery time, and those that also belong to light
queues (``%LMQ%``), which get an equal unit in queue 0 of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.consume_queue import UNIT_DTYPE, Units
from storage.format.consume_entry import SCHEDULE_TOPIC, UNIT_SIZE, record_tag_code
from storage.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    decode_properties,
)
from storage.kernels.batch import group_by_queue
from storage.kernels.columns import (
    FEATURES,
    HAS_DELAY,
    HAS_MULTI_DISPATCH,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    STORE_TIMESTAMP,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.queue import build_units, unit_queue_offsets

if TYPE_CHECKING:
    from storage.log_walk import Records

LIGHT_QUEUE_PREFIX: Final = "%LMQ%"


class QueueUnits(NamedTuple):
    """Units of one queue in commit order, and the queue offset that each one's record names."""

    topic: str
    queue_id: int
    queue_offsets: npt.NDArray[np.int64]
    units: Units


def queue_units(records: Records) -> Iterator[QueueUnits]:
    """Yield the units of a run of records, queue by queue in order of first appearance."""
    rows = records.rows
    count = len(rows)
    group_of = np.empty(count, np.int64)
    first_row = np.empty(count, np.int64)
    group_size = np.empty(count, np.int64)
    group_count = int(
        group_by_queue(records.data, rows, count, group_of, first_row, group_size)
    )
    group_start = np.empty(group_count + 1, np.int64)
    unit_bytes = np.empty(count * UNIT_SIZE, np.uint8)
    total = int(
        build_units(
            rows, count, group_of, group_count, records.data_offset, unit_bytes, group_start
        )
    )
    queue_offsets = np.empty(total, np.int64)
    unit_queue_offsets(rows, count, group_of, group_count, group_start, queue_offsets)
    units = unit_bytes[: total * UNIT_SIZE].view(UNIT_DTYPE)
    for group in range(group_count):
        begin, end = int(group_start[group]), int(group_start[group + 1])
        if begin == end:
            continue
        first = rows[first_row[group]]
        topic = _topic(records, first)
        if topic == SCHEDULE_TOPIC:
            _set_delivery_times(records, rows[group_of == group], units[begin:end])
        yield QueueUnits(
            topic, int(first[QUEUE_ID]), queue_offsets[begin:end], units[begin:end]
        )
    if np.bitwise_or.reduce(rows[:, FEATURES]) & HAS_MULTI_DISPATCH:
        yield from _light_queue_units(records, units)


def _topic(records: Records, row: npt.NDArray[np.int64]) -> str:
    position = int(row[TOPIC_POSITION])
    return records.data[position : position + int(row[TOPIC_LENGTH])].tobytes().decode("ascii")


def _properties(records: Records, row: npt.NDArray[np.int64]) -> dict[str, str]:
    position = int(row[PROPERTIES_POSITION])
    return decode_properties(
        records.data[position : position + int(row[PROPERTIES_LENGTH])].tobytes()
    )


def _set_delivery_times(records: Records, rows: npt.NDArray[np.int64], units: Units) -> None:
    by_commit_offset = {int(unit["offset"]): unit for unit in units}
    for row in rows[(rows[:, FEATURES] & HAS_DELAY) != 0]:
        unit = by_commit_offset.get(records.data_offset + int(row[POSITION]))
        if unit is not None:
            unit["tag"] = record_tag_code(
                SCHEDULE_TOPIC, _properties(records, row), int(row[STORE_TIMESTAMP])
            )


def _light_queue_units(records: Records, units: Units) -> Iterator[QueueUnits]:
    place_of = {int(offset): place for place, offset in enumerate(units["offset"])}
    found: dict[str, list[tuple[int, int]]] = {}
    for row in records.rows[(records.rows[:, FEATURES] & HAS_MULTI_DISPATCH) != 0]:
        place = place_of.get(records.data_offset + int(row[POSITION]))
        properties = _properties(records, row)
        names = properties.get(INNER_MULTI_DISPATCH, "").split(",")
        offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
        if place is None or len(names) != len(offsets):
            continue
        for name, offset in zip(names, offsets, strict=True):
            if name.startswith(LIGHT_QUEUE_PREFIX) and "/" not in name:
                with suppress(ValueError):
                    found.setdefault(name, []).append((int(offset), place))
    for name, places in found.items():
        yield QueueUnits(
            name,
            0,
            np.array([offset for offset, _ in places], np.int64),
            units[np.array([place for _, place in places])],
        )
