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

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.format.names import GIVEN_UP_TOPIC
from storage.kernels.columns import COMMIT_OFFSET
from storage.transactions.half_records import halves_in, ids_in
from storage.transactions.progress import NO_PROGRESS, TransactionProgress
from storage.transactions.reading import (
    NO_REMOVALS,
    copied_halves,
    read_halves,
    read_removals,
    with_bad_bodies,
)
from storage.transactions.removals import HalfEnd, end_of, removed_offsets
from storage.transactions.values import TransactionState

if TYPE_CHECKING:
    from storage.message import Damage
    from storage.queues.consume_queue import ConsumeQueue
    from storage.transactions.halves import Half
    from storage.transactions.log_access import TransactionLog
    from storage.transactions.reading import Longs, Removals

REMEMBERED_MAX: Final = 10_000  # halves that ended last
_REMOVALS_MAX: Final = 2 * REMEMBERED_MAX  # op records that are read for them
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
                    superseded.append(former.queue_offset)
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
        offsets = removed_offsets(record)
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
