"""What a profile counts in each piece of a log, and how counts of pieces are added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.jobs.new_store.log_slices import Longs, Rows, group
from pipeline.jobs.work import walk_piece
from storage.kernels.columns import (
    BODY_LENGTH,
    FEATURES,
    HAS_KEYS,
    KEYS_LENGTH,
    KEYS_POSITION,
    SIZE,
    STORE_TIMESTAMP,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    ByteArray,
)
from storage.kernels.same_keys import group_by_key, part_keys
from storage.view.log.walk import DamagedRange
from storage.view.pieces import LogPiece

SIZE_STEPS: Final = 8  # of a size class: each is at most 1/8 octave, 9 %, wide
HOT_KEYS_MAX: Final = 4096  # kept of each task where hot keys are counted approximately
REGISTER_BITS: Final = 12
REGISTERS: Final = 1 << REGISTER_BITS
TopicKey = tuple[str, bytes]


class QueueName(NamedTuple):
    """A queue of one of the stores; stores are numbered."""

    store: int
    topic: str
    queue_id: int


@dataclass
class Tally:
    """Records, their bytes as stored, and the bytes of their bodies."""

    records: int = 0
    size: int = 0
    body: int = 0

    def add(self, other: Tally) -> None:
        """Add another's counts."""
        self.records += other.records
        self.size += other.size
        self.body += other.body


@dataclass
class Counts:
    """Everything that is counted in one range of the log, or in many."""

    queues: dict[QueueName, Tally] = field(default_factory=dict)
    times: dict[tuple[str, int], Tally] = field(default_factory=dict)
    sizes: Counter[tuple[str, int]] = field(default_factory=Counter)
    size_min: int = 1 << 62
    size_max: int = 0
    keys: Counter[TopicKey] = field(default_factory=Counter)
    missed: int = 0  # the most that the count of any key may lack
    registers: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(REGISTERS, np.int8))
    damaged: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another range."""
        for queue, tally in other.queues.items():
            self.queues.setdefault(queue, Tally()).add(tally)
        for when, tally in other.times.items():
            self.times.setdefault(when, Tally()).add(tally)
        self.sizes.update(other.sizes)
        self.size_min = min(self.size_min, other.size_min)
        self.size_max = max(self.size_max, other.size_max)
        self.keys.update(other.keys)
        self.missed += other.missed
        self.registers = np.maximum(self.registers, other.registers)
        self.damaged += other.damaged

    def forget_cold_keys(self, kept: int = HOT_KEYS_MAX) -> None:
        """Keep the most frequent keys alone; no other had more than ``missed`` grows by."""
        if len(self.keys) <= kept:
            return
        ordered = self.keys.most_common(kept + 1)
        self.missed += ordered[-1][1]
        self.keys = Counter(dict(ordered[:kept]))

    @property
    def distinct_keys(self) -> int:
        """Estimate how many pairs of topic and key there are; within some 2 %."""
        return estimate(self.registers)


def count_pieces(
    pieces: Iterable[tuple[int, LogPiece]],
    *,
    begin_ms: int,
    interval_ms: int,
    interval_count: int,
    approximate: bool,
    counter: Any,
) -> Counts:
    """Count pieces, each with the number of its store; times are numbers of intervals."""
    counts = Counts()
    for store, piece in pieces:
        data = piece.data()
        parts: list[Rows] = []
        for step in walk_piece(piece, data, checks=0):
            if isinstance(step, DamagedRange):
                counts.damaged += step.end_offset - step.begin_offset
            else:
                parts.append(step.rows.copy())
        if parts:
            rows = np.concatenate(parts)
            intervals = np.clip(
                (rows[:, STORE_TIMESTAMP] - begin_ms) // interval_ms, 0, interval_count - 1
            )
            _count_rows(counts, store, data, rows, intervals)
            if approximate:
                _count_keys(counts, data, rows)
                counts.forget_cold_keys()
        counter.add(piece.cost)
    return counts


def size_class(sizes: Longs) -> Longs:
    """Return the class of each size; :func:`class_floor` gives the sizes back."""
    exact = np.maximum(sizes, 1).astype(np.float64)
    return np.floor(np.log2(exact) * SIZE_STEPS + 1e-9).astype(np.int64)


def class_floor(number: int) -> int:
    """Return the smallest size of a class."""
    return int(np.ceil(2 ** (number / SIZE_STEPS) - 1e-9))


def _count_rows(counts: Counts, store: int, data: ByteArray, rows: Rows, intervals: Longs) -> None:
    keys, key_of = group(data, rows)
    sizes, bodies = rows[:, SIZE], rows[:, BODY_LENGTH]
    counts.size_min = min(counts.size_min, int(sizes.min()))
    counts.size_max = max(counts.size_max, int(sizes.max()))
    for number, tally in _tallies(key_of, sizes, bodies):
        name = QueueName(store, *keys[number])
        counts.queues.setdefault(name, Tally()).add(tally)
    topics = sorted({topic for topic, _ in keys})
    topic_of = np.array([topics.index(topic) for topic, _ in keys])[key_of]
    width = int(intervals.max()) + 1
    for number, tally in _tallies(topic_of * width + intervals, sizes, bodies):
        topic, interval = topics[number // width], number % width
        counts.times.setdefault((topic, interval), Tally()).add(tally)
    classes = size_class(sizes)
    width = int(classes.max()) + 1
    found, times = np.unique(topic_of * width + classes, return_counts=True)
    for number, count in zip(found.tolist(), times.tolist(), strict=True):
        counts.sizes[topics[number // width], number % width] += count


def _tallies(numbers: Longs, sizes: Longs, bodies: Longs) -> Iterable[tuple[int, Tally]]:
    found, places = np.unique(numbers, return_inverse=True)
    columns = (
        np.bincount(places),
        np.bincount(places, weights=sizes),
        np.bincount(places, weights=bodies),
    )
    for number, count, size, body in zip(found.tolist(), *columns, strict=True):
        yield number, Tally(int(count), int(size), int(body))


def single_keys(data: ByteArray, rows: Rows) -> Rows:
    """Return a row for each key of each record, KEYS being that key alone."""
    keyed = rows[(rows[:, FEATURES] & HAS_KEYS) != 0]
    capacity = int(((keyed[:, KEYS_LENGTH] + 1) // 2).sum())
    row_of, positions, lengths = np.empty((3, capacity), np.int64)
    count = int(part_keys(data, keyed, row_of, positions, lengths))
    parted = keyed[row_of[:count]]
    parted[:, KEYS_POSITION] = positions[:count]
    parted[:, KEYS_LENGTH] = lengths[:count]
    return parted


def _count_keys(counts: Counts, data: ByteArray, rows: Rows) -> None:
    parted = single_keys(data, rows)
    count = len(parted)
    if not count:
        return
    key_of, last_row, hashes = np.empty((3, count), np.int64)
    distinct = int(group_by_key(data, parted, key_of, last_row, hashes))
    _note_distinct(counts.registers, hashes[:distinct])
    times = np.bincount(key_of[:count], minlength=distinct)
    hottest = np.argsort(times)[::-1]
    for number in hottest[:HOT_KEYS_MAX].tolist():
        counts.keys[_topic_key(data, parted[last_row[number]])] += int(times[number])
    if distinct > HOT_KEYS_MAX:
        counts.missed += int(times[hottest[HOT_KEYS_MAX]])


def _topic_key(data: ByteArray, row: Rows) -> TopicKey:
    topic_at, key_at = int(row[TOPIC_POSITION]), int(row[KEYS_POSITION])
    topic = data[topic_at : topic_at + int(row[TOPIC_LENGTH])].tobytes().decode("ascii")
    return topic, data[key_at : key_at + int(row[KEYS_LENGTH])].tobytes()


def _note_distinct(registers: npt.NDArray[np.int8], hashes: Longs) -> None:
    """Put hashes of 63 bits into a HyperLogLog sketch."""
    rest = hashes >> REGISTER_BITS
    ranks = 51 - np.floor(np.log2(np.maximum(rest, 1).astype(np.float64))).astype(np.int8)
    ranks[rest == 0] = 52
    np.maximum.at(registers, hashes & (REGISTERS - 1), ranks.astype(np.int8))


def estimate(registers: npt.NDArray[np.int8]) -> int:
    """Estimate how many different hashes were put into a sketch."""
    alpha = 0.7213 / (1 + 1.079 / REGISTERS)
    raw = alpha * REGISTERS**2 / float(np.sum(2.0 ** -registers.astype(np.float64)))
    empty = int(np.count_nonzero(registers == 0))
    if raw <= 2.5 * REGISTERS and empty:
        return round(REGISTERS * np.log(REGISTERS / empty))
    return round(raw)
