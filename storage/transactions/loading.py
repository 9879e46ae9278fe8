"""What a start finds of transactions: the halves that nobody has ended, and how the latest others ended.

A commit stands in the log as one batch: first the copies, then the op records. So a commit that was
stopped has left its first copies as the last records of the log, without an op record: it is decided,
and is completed. A broker writes op records up to 3 s later; its copies are found alike. Copies that stand
before ``copies_offset`` have an op record; where one is damaged, they are looked for, too. What was
given up is found in the same way, in the topic of those.

A half that was stored again for a check is followed by the op record of the one before in the same
way. Of two halves with one unique key in one transaction the later one counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.engine.copies import after_hosts
from storage.engine.parked_queue import ParkedLog, ParkedQueue, ParkedRecords
from storage.format.names import GIVEN_UP_TOPIC, HALF_REMOVAL_TOPIC, HALF_TOPIC
from storage.format.record_layout import (
    SYS_FLAG_COMMITTED,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    COMMIT_OFFSET,
    STOP_BODY_CRC,
    STOP_END,
    SYS_FLAG,
    fields_at,
    new_rows,
)
from storage.kernels.scan import scan_records
from storage.transactions.half_records import HalfEnd, end_of, halves_in, ids_in, removed_offsets
from storage.transactions.progress import NO_PROGRESS, TransactionProgress
from storage.transactions.values import TransactionState

if TYPE_CHECKING:
    from storage.engine.engine import Engine
    from storage.kernels.columns import ByteArray
    from storage.message import Damage
    from storage.queues.consume_queue import ConsumeQueue
    from storage.transactions.halves import Half
    from storage.transactions.log_access import TransactionLog

_LOG: Final = logging.getLogger(__name__)
Longs = npt.NDArray[np.int64]
REMEMBERED_MAX: Final = 10_000  # halves that ended last
_REMOVALS_MAX: Final = 2 * REMEMBERED_MAX  # op records that are read for them
ROWS_MAX: Final = 65_536
DOUBTFUL_UNITS: Final = 16  # before where copies seem to begin: a flipped bit makes one seem older
BYTES_MAX: Final = 2 << 20  # as arrays of numbers they take sixty times as much
_NONE: Final = np.empty(0, np.int64)
_LACKS: Final = "it lacks what each half message has"
_STATES: Final = {
    HalfEnd.COMMIT: TransactionState.COMMITTED,
    HalfEnd.ROLLBACK: TransactionState.ROLLED_BACK,
    HalfEnd.GIVEN_UP: TransactionState.GIVEN_UP,
}


class DamagedHalf(NamedTuple):
    """A half message that is not ended and cannot be read."""

    queue_offset: int
    commit_offset: int
    problem: str
    transaction_id: str  # empty if nothing says whose it is; else it is pending


class LoadedTransactions(NamedTuple):
    """What a start goes on with."""

    pending: list[Half]
    superseded: list[int]  # queue offsets of halves that are pending no more and have no op record
    copied: dict[str, set[int]]  # commit offsets of halves that have a copy, by transaction
    given_up: dict[str, set[int]]  # the same of those that nobody ended
    damaged: list[DamagedHalf]
    damaged_removals: tuple[Damage, ...]
    ended: dict[str, tuple[TransactionState, int]]  # by id: state, number of messages
    progress: TransactionProgress

    def report(self) -> None:
        """Log what cannot be read."""
        for each in self.damaged:
            _LOG.error(
                "the half message at queue offset %d, commit offset %d, cannot be read: %s; %s",
                each.queue_offset, each.commit_offset, each.problem,
                f"transaction {each.transaction_id} cannot be committed"
                if each.transaction_id
                else "nothing says whose it is",
            )  # fmt: skip
        for removal in self.damaged_removals:
            _LOG.error(
                "the op record at queue offset %d, commit offset %d, cannot be read: %s;"
                " transactions that it ended without a copy are asked about again",
                removal.queue_offset, removal.commit_offset, removal.reason,
            )  # fmt: skip


def load_transactions(
    log: TransactionLog,
    progress: TransactionProgress,
    *,
    immunity_ms: int,
    interval_ms: int,
    age_max_ms: int,
) -> LoadedTransactions:
    """Read half queue and op records from ``progress`` on."""
    queue, removal_queue = log.half_queue(), log.removal_queue()
    half_end = 0 if queue is None else queue.next_offset
    removal_end = 0 if removal_queue is None else removal_queue.next_offset
    # The end of the log may be lost; what is stored there next has not been ended.
    end = log.engine.log.appended_offset
    if any(
        kept > there for kept, there in zip(progress, (half_end, removal_end, end), strict=True)
    ):
        progress = NO_PROGRESS
    removals, remembered = NO_REMOVALS, {}
    if removal_queue is not None:
        removals = read_removals(log.engine, progress.removal_offset)
        remembered = _remembered(log, queue, removal_queue)
    ended_keys = _ended_keys(log, queue, removals) if removals.damaged else {}
    pending: dict[tuple[str, str], Half] = {}
    superseded: list[int] = []
    damaged: list[DamagedHalf] = []
    found = (
        () if queue is None else read_halves(log.engine, progress.half_offset, but=removals.removed)
    )
    for records in found:
        problems = {each.queue_offset: each for each in records.damaged}
        for part in (records, with_bad_bodies(log, records.damaged)):
            halves_found = halves_in(
                part, immunity_ms=immunity_ms, interval_ms=interval_ms, age_max_ms=age_max_ms
            )
            for number, (half, first_offset) in enumerate(halves_found):
                queue_offset = int(part.queue_offsets[number])
                problem = problems.pop(queue_offset, None)
                if first_offset >= 0 and removals.names(first_offset):
                    superseded.append(queue_offset)
                    continue
                if half is None:
                    commit_offset = int(part.rows[number, COMMIT_OFFSET])
                    damaged.append(DamagedHalf(queue_offset, commit_offset, _LACKS, ""))
                    continue
                key = half.transaction_id, half.unique_key
                former = pending.get(key)
                # A damaged one is no reason to forget a whole one.
                if ended_keys.get(key, -1) > queue_offset or (problem and former):
                    superseded.append(queue_offset)
                    continue
                if former is not None:
                    superseded.append(pending.pop(key).queue_offset)  # what is pending ascends
                pending[key] = half
                if problem:
                    damaged.append(_damaged(problem, half.transaction_id))
        damaged += [_damaged(each, "") for each in problems.values()]
    halves = list(pending.values())
    since = 0 if removals.damaged else progress.copies_offset
    copies, given_up = _copies(log, halves, since) if since < end else (set(), set())
    return LoadedTransactions(
        pending=halves,
        superseded=superseded,
        copied=_by_transaction(halves, copies),
        given_up=_by_transaction(halves, given_up),
        damaged=damaged,
        damaged_removals=removals.damaged,
        ended=remembered,
        progress=progress,
    )


def _damaged(found: Damage, transaction_id: str) -> DamagedHalf:
    return DamagedHalf(found.queue_offset, found.commit_offset, found.reason, transaction_id)


def _remembered(
    log: TransactionLog, halves: ConsumeQueue | None, queue: ConsumeQueue
) -> dict[str, tuple[TransactionState, int]]:
    """Return how the transactions of the latest op records ended, the last one at the end."""
    found: dict[str, tuple[TransactionState, int]] = {}
    if halves is None:
        return found
    count = 0
    latest = []
    # Op records that do not say how halves ended, a broker's among them, count as well.
    first = max(queue.first_offset, queue.next_offset - _REMOVALS_MAX)
    for removal in range(queue.next_offset - 1, first - 1, -1):
        record = log.read_decoded(int(queue.unit(removal).commit_offset))
        state = None if record is None else _STATES.get(end_of(record) or HalfEnd.AGAIN)
        if record is None or state is None:
            continue
        offsets = removed_offsets(record.body)
        count += len(offsets)
        if count > REMEMBERED_MAX:
            break
        latest.append((state, offsets))
    wanted = sorted({offset for _, offsets in latest for offset in offsets})
    ids = _ids(log, np.array(wanted, np.int64))
    for state, offsets in reversed(latest):
        for offset in offsets:
            transaction_id, _ = ids.get(offset, ("", ""))
            if transaction_id:
                _, before = found.pop(transaction_id, (state, 0))
                found[transaction_id] = state, before + 1
    return found


def _ids(log: TransactionLog, queue_offsets: Longs) -> dict[int, tuple[str, str]]:
    """Return transaction id and unique key of the half messages at queue offsets, as far as they can be read."""
    return {
        queue_offset: (transaction_id, unique_key)
        for records in read_halves(log.engine, 0, only=queue_offsets)
        for queue_offset, transaction_id, unique_key in ids_in(records)
    }


def _copies(log: TransactionLog, halves: Iterable[Half], since: int) -> tuple[set[int], set[int]]:
    """Return the commit offsets of halves of which a copy stands in its queue, and where those are that were given up.

    Copies before the commit offset ``since`` are not looked at.
    """
    found: set[int] = set()
    oldest: dict[tuple[str, int], int] = {}
    for half in halves:
        key = half.topic, half.queue_id
        oldest[key] = min(oldest.get(key, half.commit_offset), half.commit_offset)
    for (topic, queue_id), first in oldest.items():
        found.update(copied_halves(log.engine, topic, queue_id, max(first, since)).tolist())
    if not oldest:
        return found, set()
    first = max(min(oldest.values()), since)
    return found, set(copied_halves(log.engine, GIVEN_UP_TOPIC, 0, first).tolist())


def _by_transaction(halves: Iterable[Half], commit_offsets: set[int]) -> dict[str, set[int]]:
    """Return which halves are at commit offsets, by transaction id."""
    found: dict[str, set[int]] = {}
    for half in halves:
        if half.commit_offset in commit_offsets:
            found.setdefault(half.transaction_id, set()).add(half.commit_offset)
    return found


def _ended_keys(
    log: TransactionLog, queue: ConsumeQueue | None, removals: Removals
) -> dict[tuple[str, str], int]:
    """Return the last queue offset of removed halves, by transaction id and unique key."""
    if queue is None:
        return {}
    found = _ids(log, removals.removed)
    return {ids: queue_offset for queue_offset, ids in found.items()}


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
    found: list[int] = []
    damaged: list[Damage] = []
    for records in _records(engine, HALF_REMOVAL_TOPIC, 0, begin):
        for begin, length in records.rows[:, (BODY_POSITION, BODY_LENGTH)].tolist():
            found += removed_offsets(records.data[begin : begin + length].tobytes())
        damaged += records.damaged
    return Removals(np.unique(np.array(found, np.int64)), tuple(damaged))


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
        record, stop = log.engine.record_at(each.commit_offset)
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
        prepared = fields_at(records.data, after_hosts(rows) + 4, ">i8")
        found.append(prepared.astype(np.int64))
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
    log = ParkedLog(engine)
    log.look()
    queue = ParkedQueue(log, topic, queue_id)
    try:
        yield queue
    finally:
        queue.close()
        log.close()
