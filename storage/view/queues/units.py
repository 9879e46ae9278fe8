"""From records to consume queue units: what one run of records adds to which queues.

Batches are grouped and built by kernels. Two kinds of records are rare and handled one by one: those
parked in the delay topic, whose tag code is their delivery time, and those that also belong to light
queues (``%LMQ%``), which get an equal unit in queue 0 of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import (
    PREFILL_SIZE,
    SCHEDULE_TOPIC,
    UNIT_SIZE,
    light_queues,
    record_tag_code,
)
from storage.format.extension_entry import ADDRESS_MAX
from storage.format.properties import decode_properties
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
from storage.kernels.queue import (
    RUN_COLUMN_COUNT,
    build_units,
    scan_units,
)

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray

UNIT_DTYPE: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")])

Units = npt.NDArray[np.void]  # of UNIT_DTYPE

Rows = npt.NDArray[np.int64]  # n x COLUMN_COUNT


def as_units(data: bytes | ByteArray) -> Units:
    """See unit bytes as an array of ``(offset, size, tag)``; what is cut at the end is left out."""
    whole = len(data) - len(data) % UNIT_SIZE
    return np.frombuffer(data[:whole] if whole < len(data) else data, UNIT_DTYPE)


def same_units(held: Units, built: Units) -> npt.NDArray[np.bool_]:
    """Return which of the units that a queue holds are those that were built for it.

    A tag code that is an address in the extension file is as good as any.
    """
    same: npt.NDArray[np.bool_] = (held["offset"] == built["offset"]) & (
        held["size"] == built["size"]
    )
    same &= (held["tag"] == built["tag"]) | (held["tag"] <= ADDRESS_MAX)
    return same


def placeholder_units(damage: tuple[int, int], count: int) -> Units:
    """Return units for queue offsets whose records lie somewhere in a damaged range of the log.

    Pulling one meets the damage and says so; the queue offsets after it stay where they were.
    """
    begin, end = damage
    units = np.zeros(count, UNIT_DTYPE)
    units["offset"] = begin
    units["size"] = min(max(end - begin, 1), PREFILL_SIZE - 1)
    return units


def prefill_units(count: int) -> Units:
    """Return units for queue offsets before a queue's first record."""
    units = np.zeros(count, UNIT_DTYPE)
    units["size"] = PREFILL_SIZE
    return units


class QueueUnits(NamedTuple):
    """Units of one queue in commit order, and the queue offset that each one's record names.

    ``units`` are bytes, 20 a unit; both arrays are good until the builder builds again.
    """

    topic: str
    queue_id: int
    units: ByteArray
    queue_offsets: npt.NDArray[np.int64]


class Scanned(NamedTuple):
    """What a scan found: the rows as of ``scan_records``, and the units of plain ones.

    A line of ``runs`` is ``(topic position, topic length, queue id, first unit, end unit, queue offset
    of the first)``; units are the same numbers of 20 bytes in ``units``. Of rows that are not
    plain (see the module) there are no runs: build them.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here
    next_position: int
    stop: int
    is_plain: bool
    runs: list[list[int]]
    units: memoryview


class UnitBuilder:
    """Builds the units of up to ``rows_max`` records at a time in buffers of its own."""

    def __init__(self, rows_max: int) -> None:
        self._group_of = np.empty(rows_max, np.int64)
        self._first_row = np.empty(rows_max, np.int64)
        self._group_size = np.empty(rows_max, np.int64)
        self._group_start = np.empty(rows_max + 1, np.int64)
        self._units = np.empty(rows_max * UNIT_SIZE, np.uint8)
        self._queue_offsets = np.empty(rows_max, np.int64)
        self._runs = np.empty((rows_max, RUN_COLUMN_COUNT), np.int64)
        self._unit_bytes = memoryview(self._units)  # type: ignore[arg-type]

    def scan(self, data: ByteArray, rows: Rows, commit_offset: int) -> Scanned:
        """Fill ``rows`` from ``data``, which starts at ``commit_offset``, and build their units.

        ``rows`` has room for ``rows_max`` records. The units are good until the builder is used again.
        """
        count, next_position, stop, features, run_count = scan_units(
            data, commit_offset, rows, self._group_of, self._first_row, self._group_size,
            self._units, self._group_start, self._queue_offsets, self._runs,
        )  # fmt: skip
        assert run_count >= 0
        is_plain = not features & (HAS_DELAY | HAS_MULTI_DISPATCH)
        runs = self._runs[:run_count].tolist() if is_plain else []
        return Scanned(count, next_position, stop, is_plain, runs, self._unit_bytes)

    def build(
        self, data: ByteArray, rows: Rows, count: int, commit_offset: int
    ) -> Iterator[QueueUnits]:
        """Yield the units of rows ``[0, count)``, queue by queue in order of first appearance.

        ``commit_offset`` is that of the first byte of ``data``.
        """
        group_of, group_start = self._group_of, self._group_start
        group_count, total = build_units(
            data, rows, count, commit_offset, group_of, self._first_row, self._group_size,
            self._units, group_start, self._queue_offsets,
        )  # fmt: skip
        rows = rows[:count]
        for group in range(int(group_count)):
            begin, end = int(group_start[group]), int(group_start[group + 1])
            if begin == end:
                continue
            first = rows[self._first_row[group]]
            units = self._units[begin * UNIT_SIZE : end * UNIT_SIZE]
            topic = _topic(data, first)
            if topic == SCHEDULE_TOPIC:
                parked = rows[group_of[:count] == group]
                _set_delivery_times(data, parked, commit_offset, as_units(units))
            yield QueueUnits(topic, int(first[QUEUE_ID]), units, self._queue_offsets[begin:end])
        if count and int(np.bitwise_or.reduce(rows[:, FEATURES])) & HAS_MULTI_DISPATCH:
            all_units = as_units(self._units[: int(total) * UNIT_SIZE])
            yield from _light_queue_units(data, rows, commit_offset, all_units)


def _topic(data: ByteArray, row: Rows) -> str:
    position = int(row[TOPIC_POSITION])
    return data[position : position + int(row[TOPIC_LENGTH])].tobytes().decode("ascii")


def _properties(data: ByteArray, row: Rows) -> dict[str, str]:
    position = int(row[PROPERTIES_POSITION])
    return decode_properties(data[position : position + int(row[PROPERTIES_LENGTH])].tobytes())


def _set_delivery_times(data: ByteArray, rows: Rows, commit_offset: int, units: Units) -> None:
    place_of = {int(offset): place for place, offset in enumerate(units["offset"])}
    for row in rows[(rows[:, FEATURES] & HAS_DELAY) != 0]:
        place = place_of.get(commit_offset + int(row[POSITION]))
        if place is not None:
            properties = _properties(data, row)
            units["tag"][place] = record_tag_code(
                SCHEDULE_TOPIC, properties, int(row[STORE_TIMESTAMP])
            )


def _light_queue_units(
    data: ByteArray, rows: Rows, commit_offset: int, units: Units
) -> Iterator[QueueUnits]:
    place_of = {int(offset): place for place, offset in enumerate(units["offset"])}
    found: dict[str, list[tuple[int, int]]] = {}
    for row in rows[(rows[:, FEATURES] & HAS_MULTI_DISPATCH) != 0]:
        place = place_of.get(commit_offset + int(row[POSITION]))
        if place is not None:
            for name, offset in light_queues(_properties(data, row)):
                found.setdefault(name, []).append((offset, place))
    for name, places in found.items():
        chosen = units[np.array([place for _, place in places])]
        queue_offsets = np.array([offset for offset, _ in places], np.int64)
        yield QueueUnits(name, 0, np.frombuffer(chosen.tobytes(), np.uint8), queue_offsets)
