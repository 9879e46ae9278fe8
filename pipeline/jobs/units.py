"""Consume queue units made from a run of records, queue by queue, as dispatch makes them.

Two kinds of records are rare and done one by one: those parked in the delay topic, whose tag code is
their delivery time, and those that also belong to light queues and get an equal unit there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.files.walk import ROWS_MAX
from pipeline.source.plan import QueueKey
from pipeline.source.tail import Grouper
from storage.format.consume_entry import (
    SCHEDULE_TOPIC,
    UNIT_SIZE,
    light_queues,
    record_tag_code,
)
from storage.format.properties import decode_properties
from storage.kernels.columns import (
    COMMIT_OFFSET,
    FEATURES,
    HAS_DELAY,
    HAS_MULTI_DISPATCH,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    STORE_TIMESTAMP,
    ByteArray,
    Rows,
)
from storage.kernels.queue import build_units, unit_queue_offsets
from storage.view.units import UNIT_DTYPE


class QueueUnits(NamedTuple):
    """Units of one queue in the log's order, and the queue offset of each; the caller's to keep."""

    key: QueueKey
    units: npt.NDArray[Any]
    queue_offsets: npt.NDArray[np.int64]


class UnitMaker:
    """Makes units of up to ROWS_MAX rows at a time."""

    def __init__(self) -> None:
        self._grouper = Grouper()
        self._starts = np.empty(ROWS_MAX + 1, np.int64)
        self._units = np.empty(ROWS_MAX * UNIT_SIZE, np.uint8)
        self._offsets = np.empty(ROWS_MAX, np.int64)

    def make(self, data: ByteArray, data_offset: int, rows: Rows) -> Iterator[QueueUnits]:
        """Yield the units of the rows; ``data_offset`` is the commit offset of ``data[0]``."""
        keys = self._grouper.group(data, rows)
        group_of, starts, count = self._grouper.group_of, self._starts, len(rows)
        total = int(build_units(rows, count, group_of, len(keys), data_offset, self._units, starts))
        unit_queue_offsets(rows, count, group_of, len(keys), starts, self._offsets)
        made = np.frombuffer(self._units[: total * UNIT_SIZE].tobytes(), UNIT_DTYPE).copy()
        if SCHEDULE_TOPIC in {topic for topic, _ in keys}:
            _set_delivery_times(data, rows, made, [topic for topic, _ in keys], group_of)
        for group, key in enumerate(keys):
            begin, end = int(starts[group]), int(starts[group + 1])
            if begin < end:
                yield QueueUnits(key, made[begin:end], self._offsets[begin:end].copy())
        if np.bitwise_or.reduce(rows[:, FEATURES]) & HAS_MULTI_DISPATCH:
            yield from _light_queues(data, rows, made)


def _properties(data: ByteArray, row: Rows) -> dict[str, str]:
    at = int(row[PROPERTIES_POSITION])
    return decode_properties(data[at : at + int(row[PROPERTIES_LENGTH])].tobytes())


def _places(units: npt.NDArray[Any]) -> dict[int, int]:
    return {int(offset): place for place, offset in enumerate(units["offset"])}


def _set_delivery_times(
    data: ByteArray,
    rows: Rows,
    units: npt.NDArray[Any],
    topics: list[str],
    group_of: npt.NDArray[np.int64],
) -> None:
    places = _places(units)
    for number in np.flatnonzero((rows[:, FEATURES] & HAS_DELAY) != 0).tolist():
        row = rows[number]
        place = places.get(int(row[COMMIT_OFFSET]))
        if place is not None and topics[group_of[number]] == SCHEDULE_TOPIC:
            code = record_tag_code(
                SCHEDULE_TOPIC, _properties(data, row), int(row[STORE_TIMESTAMP])
            )
            units["tag"][place] = code


def _light_queues(data: ByteArray, rows: Rows, units: npt.NDArray[Any]) -> Iterator[QueueUnits]:
    places = _places(units)
    found: dict[str, list[tuple[int, int]]] = {}
    for row in rows[(rows[:, FEATURES] & HAS_MULTI_DISPATCH) != 0]:
        place = places.get(int(row[COMMIT_OFFSET]))
        if place is not None:
            for name, offset in light_queues(_properties(data, row)):
                found.setdefault(name, []).append((offset, place))
    for name, pairs in found.items():
        chosen = units[np.array([place for _, place in pairs])]
        yield QueueUnits((name, 0), chosen, np.array([offset for offset, _ in pairs], np.int64))
