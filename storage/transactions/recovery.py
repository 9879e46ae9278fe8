"""What a start finds of transactions: the halves that nobody has ended, and how the latest others ended.

A commit stands in the log as one batch: first the copies, then the op records. So a commit that was
stopped has left its first copies as the last records of the log, without an op record: it is decided,
and is completed. A broker writes op records up to 3 s later; its copies are found alike. Copies that stand
before ``copies_offset`` have an op record; where one is damaged, they are looked for, too. What was
given up is found in the same way, by the topic of its copies.

A half that was stored again for a check is followed by the op record of the one before in the same
way. Of two halves with one unique key in one transaction the later one counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.engine.copies import after_hosts
from storage.engine.writer_view import QueueRecords, WriterLogView, WriterQueueView
from storage.format.names import GIVEN_UP_TOPIC, HALF_REMOVAL_TOPIC, HALF_TOPIC
from storage.format.record_layout import (
    SYS_FLAG_COMMITTED,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    COMMIT_OFFSET,
    SIZE,
    SYS_FLAG,
    fields_at,
)
from storage.message import Damage
from storage.transactions.half_records import HalfEnd, end_of, halves_in, ids_in, removed_offsets
from storage.transactions.progress import NO_PROGRESS, TransactionProgress
from storage.transactions.values import TransactionState
from storage.view.log.walk import RecordRun, walk_log
from storage.view.queues.record_queues import queue_of

if TYPE_CHECKING:
    from storage.engine.engine import Engine
    from storage.queues.consume_queue import ConsumeQueue
    from storage.transactions.halves import Half
    from storage.transactions.log_access import TransactionLog

_LOG: Final = logging.getLogger(__name__)
Longs = npt.NDArray[np.int64]
REMEMBERED_MAX: Final = 10_000  # halves that ended last
_REMOVALS_MAX: Final = 2 * REMEMBERED_MAX  # op records that are read for them
BYTES_MAX: Final = 2 << 20  # as arrays of numbers they take sixty times as much
_NONE: Final = np.empty(0, np.int64)
_LACKS: Final = "it lacks what each half message has"
_STATES: Final = {
    HalfEnd.COMMIT: TransactionState.COMMITTED,
    HalfEnd.ROLLBACK: TransactionState.ROLLED_BACK,
    HalfEnd.GIVEN_UP: TransactionState.GIVEN_UP,
}


class LoadedTransactions(NamedTuple):
    """What a start goes on with."""

    pending: list[Half]
    superseded: list[int]  # queue offsets of halves that are pending no more and have no op record
    copied: dict[str, set[int]]  # commit offsets of halves that have a copy, by transaction
    given_up: dict[str, set[int]]  # the same of those that nobody ended
    damaged: list[Damage]  # halves that are not ended
    damaged_removals: tuple[Damage, ...]
    ended: dict[str, tuple[TransactionState, int]]  # by id: state, number of messages
    progress: TransactionProgress

    def report(self) -> None:
        """Log what cannot be read."""
        for each in self.damaged:
            _LOG.error(
                "the half message at queue offset %d, commit offset %d, cannot be read: %s;"
                " no commit delivers it",
                each.queue_offset, each.commit_offset, each.reason,
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
    pending: dict[tuple[str, str], Half] = {}
    superseded: list[int] = []
    damaged: list[Damage] = []
    found = (
        () if queue is None else read_halves(log.engine, progress.half_offset, but=removals.removed)
    )
    for records in found:
        damaged += records.damaged
        halves_found = halves_in(
            records, immunity_ms=immunity_ms, interval_ms=interval_ms, age_max_ms=age_max_ms
        )
        for number, (half, first_offset) in enumerate(halves_found):
            queue_offset = int(records.queue_offsets[number])
            if first_offset >= 0 and removals.names(first_offset):
                superseded.append(queue_offset)
                continue
            if half is None:
                commit_offset, size = records.rows[number, (COMMIT_OFFSET, SIZE)].tolist()
                damaged.append(
                    Damage(
                        queue_offset=queue_offset, commit_offset=commit_offset, size=size, reason=_LACKS
                    )
                )  # fmt: skip
                continue
            key = half.transaction_id, half.unique_key
            former = pending.pop(key, None)  # what is pending ascends
            if former is not None:
                superseded.append(former.queue_offset)
            pending[key] = half
    halves = list(pending.values())
    copied, given_up = _copied(
        log.engine, halves, 0 if removals.damaged else progress.copies_offset
    )
    return LoadedTransactions(
        pending=halves,
        superseded=superseded,
        copied=copied,
        given_up=given_up,
        damaged=damaged,
        damaged_removals=removals.damaged,
        ended=remembered,
        progress=progress,
    )


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
    ids = {
        queue_offset: transaction_id
        for records in read_halves(log.engine, 0, only=np.array(wanted, np.int64))
        for queue_offset, transaction_id in ids_in(records)
    }
    for state, offsets in reversed(latest):
        for offset in offsets:
            transaction_id = ids.get(offset, "")
            if transaction_id:
                _, before = found.pop(transaction_id, (state, 0))
                found[transaction_id] = state, before + 1
    return found


CopiedHalves = dict[str, set[int]]  # commit offsets of halves that have a copy, by transaction


def _copied(
    engine: Engine, halves: Iterable[Half], since: int
) -> tuple[CopiedHalves, CopiedHalves]:
    """Return of which halves the log has a copy from the commit offset ``since`` on; and those that were given up."""
    copied: CopiedHalves = {}
    given_up: CopiedHalves = {}
    ids = {half.commit_offset: half.transaction_id for half in halves}
    begin, end = max(since, min(ids, default=0)), engine.recovered.end_offset
    for records in walk_log(engine.log.files, begin, end if ids else begin):
        if isinstance(records, RecordRun):
            flags = records.rows[:, SYS_FLAG]
            rows = records.rows[flags & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_COMMITTED]
            prepared = fields_at(records.data, after_hosts(rows) + 4, ">i8")
            for row, commit_offset in zip(rows, prepared.tolist(), strict=True):
                if commit_offset in ids:
                    topic, _ = queue_of(records.data, row)
                    found = given_up if topic == GIVEN_UP_TOPIC else copied
                    found.setdefault(ids[commit_offset], set()).add(commit_offset)
    return copied, given_up


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
    with _opened(engine, HALF_REMOVAL_TOPIC) as queue:
        first, end = queue.bounds()
        for records in queue.read(np.arange(max(begin, first), end), bytes_max=BYTES_MAX):
            for at, length in records.rows[:, (BODY_POSITION, BODY_LENGTH)].tolist():
                found += removed_offsets(records.data[at : at + length].tobytes())
            damaged += records.damaged
    return Removals(np.unique(np.array(found, np.int64)), tuple(damaged))


def read_halves(
    engine: Engine, begin: int, *, but: Longs = _NONE, only: Longs | None = None
) -> Iterator[QueueRecords]:
    """Yield the half messages from a queue offset on, without those ``but``, of ``only`` these; both ascending."""
    with _opened(engine, HALF_TOPIC) as queue:
        first, end = queue.bounds()
        wanted = np.arange(max(begin, first), end) if only is None else only
        wanted = wanted[(wanted >= max(begin, first)) & (wanted < end)]
        wanted = np.setdiff1d(wanted, but, assume_unique=True)
        yield from queue.read(wanted, bytes_max=BYTES_MAX)


@contextmanager
def _opened(engine: Engine, topic: str) -> Iterator[WriterQueueView]:
    with closing(WriterLogView(engine)) as log:
        log.look()
        with closing(WriterQueueView(log, topic, 0)) as queue:
            yield queue
