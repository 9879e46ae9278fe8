"""What a broker needs of pending timers, written when the store is closed: its timer wheel and timer log.

With both a broker goes on where we stopped: it reads no record of the timer topic again, and so delivers none
again. While the store is open there is neither, since they would soon be wrong: after a kill a broker finds
``timercheck`` alone, and reads the timer topic again from the oldest pending record on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import tag_code
from storage.format.names import file_name
from storage.format.timer_files import (
    MAGIC_RECALL,
    MAGIC_ROLLED,
    MAGIC_TIMER,
    SECOND_MS,
    TIMER_LOG_END,
    TIMER_LOG_END_MAGIC,
    TIMER_LOG_FILE_SIZE,
    WHEEL_SLOTS,
    out_ms,
)
from storage.timers.recalls import RECALL_TAG
from storage.view.queues.units import Units, as_units

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.queues.consume_queue import ConsumeQueue
    from storage.timers.blocks import TimerBlock

Longs = npt.NDArray[np.int64]
IsRecall = Callable[[int, int], bool]
WHEEL_SLOT: Final = np.dtype(
    [("second", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")]
)
TIMER_LOG_UNIT: Final = np.dtype(
    [
        ("size", ">i4"), ("previous", ">i8"), ("magic", ">i4"), ("write_ms", ">i8"), ("delay_ms", ">i4"),
        ("commit_offset", ">i8"), ("record_size", ">i4"), ("topic_hash", ">i4"), ("reserved", ">i8"),
    ]
)  # fmt: skip
ROLL_WINDOW_MS: Final = 172_800 * SECOND_MS
PAST_MS: Final = 10_000
ROWS_MAX: Final = 1 << 18  # handled at once
UNIT_SIZE: Final = TIMER_LOG_UNIT.itemsize
WHEEL_NAME: Final = "timerwheel"
LOG_NAME: Final = "timerlog"
_RECALL_CODE: Final = tag_code(RECALL_TAG)


class Rows(NamedTuple):
    """Pending rows: the second that a broker's timer knows of each, and its unit in the timer topic."""

    outs_ms: Longs
    units: Units
    recalls: npt.NDArray[np.bool_]


def has_broker_timers(filesystem: FileSystem, root: Path) -> bool:
    """Return whether there is a timer wheel or a timer log."""
    return filesystem.exists(root / WHEEL_NAME) or bool(filesystem.list_directory(root / LOG_NAME))


def timer_log_file_size(filesystem: FileSystem, root: Path) -> int | None:
    """Return the size of the timer log's files, as a broker is set to have it; None if there are none."""
    for entry in filesystem.list_directory(root / LOG_NAME):
        if entry.size >= UNIT_SIZE + TIMER_LOG_END.size:
            return entry.size
    return None


def remove_broker_timers(filesystem: FileSystem, root: Path) -> None:
    """Remove timer wheel and timer log."""
    with suppress(FileNotFoundError):
        filesystem.unlink(root / WHEEL_NAME)
    for entry in filesystem.list_directory(root / LOG_NAME):
        filesystem.unlink(root / LOG_NAME / entry.name)


def write_broker_timers(
    filesystem: FileSystem,
    root: Path,
    blocks: Iterable[TimerBlock],
    queue: ConsumeQueue,
    *,
    is_recall: IsRecall,
    read_ms: int,
    now_ms: int,
    file_size: int = TIMER_LOG_FILE_SIZE,
) -> int:
    """Write timer wheel and timer log of pending rows; return where the timer log ends. Durable on return.

    All of the topic's records count as read then, and slots before ``read_ms`` as delivered. ``is_recall`` is asked of records that may be recalls. Raises StoreFull, OSError.
    """
    remove_broker_timers(filesystem, root)
    log = _TimerLog(filesystem, root / LOG_NAME, file_size)
    wheel = np.zeros(WHEEL_SLOTS, WHEEL_SLOT)
    try:
        for block in blocks:
            for begin in range(block.head, len(block.rows), ROWS_MAX):
                end = min(begin + ROWS_MAX, len(block.rows))
                rows = _rows(
                    block.dues_ms(begin, end), block.queue_offsets(begin, end), queue, is_recall
                )
                _add(log, wheel, rows, now_ms)
        # The last unit says up to where a broker has read the topic; no broker looks at its slot any more.
        last = as_units(queue.read(queue.next_offset - 1, 1))
        log.append(_units(last, np.array([-1]), MAGIC_TIMER, read_ms - PAST_MS, np.array([0])))
    finally:
        log.close()
    filesystem.write_atomically(root / WHEEL_NAME, wheel.tobytes(), backup=False)
    return log.end


def _rows(dues_ms: Longs, queue_offsets: Longs, queue: ConsumeQueue, is_recall: IsRecall) -> Rows:
    """Return rows with their units."""
    order = np.argsort(queue_offsets, kind="stable")
    sorted_offsets = queue_offsets[order]
    units = np.empty(len(order), as_units(b"").dtype)
    breaks = np.flatnonzero(np.diff(sorted_offsets) > 1_000) + 1
    begins = [0, *breaks.tolist(), len(order)]
    for begin, end in pairwise(begins):
        first, last = int(sorted_offsets[begin]), int(sorted_offsets[end - 1])
        held = as_units(queue.read(first, last - first + 1))
        units[order[begin:end]] = held[sorted_offsets[begin:end] - first]
    recalls = units["tag"] == _RECALL_CODE
    for place in np.flatnonzero(recalls).tolist():
        recalls[place] = is_recall(int(units["offset"][place]), int(units["size"][place]))
    dues_ms = np.where(recalls, dues_ms + SECOND_MS, dues_ms)
    return Rows(out_ms(dues_ms), units, recalls)


def _add(log: _TimerLog, wheel: npt.NDArray[np.void], rows: Rows, now_ms: int) -> None:
    """Append units for rows, and hang them into their slots."""
    write_ms = now_ms // SECOND_MS * SECOND_MS
    left_ms = rows.outs_ms - write_ms
    rolled = left_ms >= ROLL_WINDOW_MS
    near = rolled & (left_ms - ROLL_WINDOW_MS < ROLL_WINDOW_MS // 3)
    outs_ms = np.where(rolled, write_ms + ROLL_WINDOW_MS, rows.outs_ms)
    outs_ms = np.where(near, write_ms + ROLL_WINDOW_MS // 2, outs_ms)
    order = np.argsort(outs_ms, kind="stable")
    units, outs_ms, rolled = rows.units[order], outs_ms[order], rolled[order]
    recalls = rows.recalls[order]
    seconds = outs_ms // SECOND_MS
    slots = seconds % WHEEL_SLOTS
    positions = log.positions(len(units))
    is_first = np.ones(len(units), np.bool_)
    is_first[1:] = slots[1:] != slots[:-1]
    previous = np.empty(len(units), np.int64)
    previous[1:] = positions[:-1]
    held = wheel["count"][slots] > 0
    previous[is_first] = np.where(held, wheel["last"][slots], -1)[is_first]
    magic = np.where(recalls, MAGIC_TIMER | MAGIC_RECALL, MAGIC_TIMER)
    magic = np.where(rolled, magic | MAGIC_ROLLED, magic)
    log.append(_units(units, previous, magic, write_ms, outs_ms - write_ms))
    begins = np.flatnonzero(is_first)
    ends = np.append(begins[1:], len(units))
    chosen = slots[begins]
    new = wheel["count"][chosen] == 0
    wheel["second"][chosen] = seconds[begins]
    wheel["first"][chosen] = np.where(new, positions[begins], wheel["first"][chosen])
    wheel["last"][chosen] = positions[ends - 1]
    wheel["count"][chosen] += (ends - begins).astype(np.int32)


def _units(
    units: Units, previous: Longs, magic: Longs | int, write_ms: int, delays_ms: Longs
) -> npt.NDArray[np.void]:
    made = np.zeros(len(units), TIMER_LOG_UNIT)
    made["size"] = UNIT_SIZE
    made["previous"] = previous
    made["magic"] = magic
    made["write_ms"] = write_ms
    made["delay_ms"] = delays_ms
    made["commit_offset"] = units["offset"]
    made["record_size"] = units["size"]
    return made


class _TimerLog:
    """A timer log that is written from its begin, in files of ``file_size`` bytes."""

    def __init__(self, filesystem: FileSystem, directory: Path, file_size: int) -> None:
        filesystem.make_directory(directory)
        self._filesystem = filesystem
        self._directory = directory
        self._file_size = file_size
        self._units_a_file = (file_size - TIMER_LOG_END.size) // UNIT_SIZE
        self._count = 0
        self.end = 0

    def positions(self, count: int) -> Longs:
        """Return where the next units will stand."""
        numbers = np.arange(self._count, self._count + count)
        return (
            numbers // self._units_a_file * self._file_size
            + numbers % self._units_a_file * UNIT_SIZE
        )

    def append(self, units: npt.NDArray[np.void]) -> None:
        """Append units; each file is durable once it is full, the last one with ``close``."""
        data = memoryview(units.tobytes())
        while data:
            number, used = divmod(self._count, self._units_a_file)
            count = min(len(data) // UNIT_SIZE, self._units_a_file - used)
            path = self._directory / file_name(number * self._file_size)
            if used == 0:
                self._filesystem.create(path, self._file_size, allocate=False).close()
            file = self._filesystem.open(path, writable=True)
            try:
                file.pwrite(data[: count * UNIT_SIZE], used * UNIT_SIZE)
                self._count += count
                position = (used + count) * UNIT_SIZE
                if used + count == self._units_a_file:
                    left = self._file_size - position
                    file.pwrite(TIMER_LOG_END.pack(left, 0, TIMER_LOG_END_MAGIC), position)
                file.sync()
            finally:
                file.close()
            self.end = number * self._file_size + position
            data = data[count * UNIT_SIZE :]

    def close(self) -> None:
        """Make the names of the files durable."""
        self._filesystem.sync_directory(self._directory)
