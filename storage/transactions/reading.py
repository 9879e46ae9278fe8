"""What a start reads of halves, op records and copies: many records at once, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.engine.parked_queue import ParkedQueue, ParkedRecords
from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC
from storage.format.record_layout import (
    SYS_FLAG_COMMITTED,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    STOP_BODY_CRC,
    STOP_END,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    new_rows,
)
from storage.kernels.scan import scan_records
from storage.view.log.commit_log import CommitLogView

if TYPE_CHECKING:
    from storage.engine.engine import Engine
    from storage.kernels.columns import ByteArray, Rows
    from storage.message import Damage
    from storage.transactions.log_access import TransactionLog

Longs = npt.NDArray[np.int64]
ROWS_MAX: Final = 65_536
DOUBTFUL_UNITS: Final = 16  # before where copies seem to begin: a flipped bit makes one seem older
BYTES_MAX: Final = 2 << 20  # as arrays of numbers they take sixty times as much
_COMMA: Final = ord(",")
_ZERO: Final = ord("0")
_DIGITS_MAX: Final = 18  # of a queue offset
_NONE: Final = np.empty(0, np.int64)


class Removals(NamedTuple):
    """Queue offsets of halves that op records name, ascending; and what of these records cannot be read."""

    removed: Longs
    damaged: tuple[Damage, ...]

    def names(self, queue_offset: int) -> bool:
        """Whether a half is among them."""
        place = int(np.searchsorted(self.removed, queue_offset))
        return place < len(self.removed) and int(self.removed[place]) == queue_offset


NO_REMOVALS: Final = Removals(_NONE, ())


def read_removals(engine: Engine, begin: int) -> Removals:
    """Read the op records from a queue offset on."""
    found: list[Longs] = [_NONE]
    damaged: list[Damage] = []
    for records in _records(engine, HALF_REMOVAL_TOPIC, 0, begin):
        found.append(removed_offsets_in(records.data, records.rows))
        damaged += records.damaged
    return Removals(np.unique(np.concatenate(found)), tuple(damaged))


def read_halves(
    engine: Engine, begin: int, *, but: Longs = _NONE, only: Longs | None = None
) -> Iterator[ParkedRecords]:
    """Yield the half messages from a queue offset on, without those ``but``, of ``only`` these; both ascending."""
    with _opened(engine, HALF_TOPIC, 0) as queue:
        first, end = queue.bounds()
        wanted = np.arange(max(begin, first), end) if only is None else only
        wanted = wanted[(wanted >= max(begin, first)) & (wanted < end)]
        yield from _at(queue, np.setdiff1d(wanted, but, assume_unique=True))


def with_bad_bodies(log: TransactionLog, damaged: Sequence[Damage]) -> ParkedRecords:
    """Return the damaged half messages of which the body is bad: their properties still say what each is."""
    found: list[tuple[int, ByteArray]] = []
    for each in damaged:
        record, stop = log.read_any(each.commit_offset)
        if record is None or stop != STOP_BODY_CRC:
            continue
        if scan_records(record, 0, record.size, 0, 0, new_rows(1))[2] == STOP_END:
            found.append((each.queue_offset, record))
    data = np.concatenate([np.empty(0, np.uint8), *(record for _, record in found)])
    rows = new_rows(len(found))
    scanned, _, stop = scan_records(data, 0, data.size, 0, 0, rows)
    assert (scanned, stop) == (len(found), STOP_END)
    queue_offsets = np.array([queue_offset for queue_offset, _ in found], np.int64)
    return ParkedRecords(len(found), queue_offsets, data, data.size, rows, ())


def copied_halves(engine: Engine, topic: str, queue_id: int, since: int) -> Longs:
    """Return the commit offsets of halves of which a queue has a copy at a commit offset from ``since`` on."""
    queue = engine.queues.known(topic, queue_id)
    if queue is None:
        return _NONE
    found = [_NONE]
    begin = queue.find_first(since) - DOUBTFUL_UNITS
    for records in _records(engine, topic, queue_id, begin):
        flags = records.rows[:, SYS_FLAG]
        rows = records.rows[flags & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_COMMITTED]
        v6 = rows[:, SYS_FLAG] & SYS_FLAG_STORE_HOST_V6 != 0
        at = rows[:, STORE_TIMESTAMP_POSITION] + 8 + np.where(v6, IPV6_HOST_SIZE, IPV4_HOST_SIZE)
        prepared = records.data[(at + 4)[:, None] + np.arange(8)].view(
            ">i8"
        )  # after reconsumeTimes
        found.append(prepared[:, 0].astype(np.int64))
    return np.concatenate(found)


def _records(engine: Engine, topic: str, queue_id: int, begin: int) -> Iterator[ParkedRecords]:
    """Yield the records of a queue from a queue offset on, some at once."""
    with _opened(engine, topic, queue_id) as queue:
        first, end = queue.bounds()
        yield from _at(queue, np.arange(max(begin, first), end))


def _at(queue: ParkedQueue, queue_offsets: Longs) -> Iterator[ParkedRecords]:
    while len(queue_offsets):
        records = queue.records(queue_offsets[:ROWS_MAX], bytes_max=BYTES_MAX, room=0)
        yield records
        queue_offsets = queue_offsets[max(records.looked_at, 1) :]


@contextmanager
def _opened(engine: Engine, topic: str, queue_id: int) -> Iterator[ParkedQueue]:
    filesystem, paths = engine.filesystem, engine.paths
    log = CommitLogView(filesystem, paths.commit_log, mapped_files_max=8)
    log.set_bounds(engine.log.min_offset, engine.dispatch.position)
    queue = ParkedQueue(filesystem, paths.consume_queue, log, topic, queue_id)
    try:
        yield queue
    finally:
        queue.close()
        log.close()


def removed_offsets_in(data: ByteArray, rows: Rows) -> Longs:
    """Return the queue offsets that op records name; of a body that is not a broker's, none.

    A body has decimal numbers with a comma after each.
    """
    sizes = (
        rows[:, BODY_LENGTH] + 1
    )  # with a comma behind the last number, whether it has one or not
    ends = np.cumsum(sizes)
    if not len(ends):
        return _NONE
    row_of = np.repeat(np.arange(len(rows)), sizes)
    at = np.arange(int(ends[-1])) + (rows[:, BODY_POSITION] - (ends - sizes))[row_of]
    at[ends - 1] = 0
    text = data[at].astype(np.int64)
    text[ends - 1] = _COMMA
    is_comma = text == _COMMA
    foreign = ~is_comma & ((text < _ZERO) | (text > _ZERO + 9))
    is_good = np.ones(len(rows), np.bool_)
    is_good[row_of[foreign]] = False
    commas = np.flatnonzero(is_comma)
    begins = np.concatenate((np.zeros(1, np.int64), commas[:-1] + 1))
    digits = commas - begins
    chosen = is_good[row_of[commas]] & (digits > 0) & (digits <= _DIGITS_MAX)
    places = np.repeat(commas, digits + 1) - np.arange(len(text)) - 1
    values = np.where(is_comma, 0, text - _ZERO) * 10 ** np.clip(places, 0, _DIGITS_MAX)
    return np.add.reduceat(values, begins)[chosen]
