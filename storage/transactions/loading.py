"""What a start finds of transactions: the halves that nobody has ended, and how the latest others ended.

A commit stands in the log as one batch: first the copies, then the op records. So a commit that was
stopped has left its first copies as the last records of the log, without an op record: it is decided,
and is completed. A broker writes op records up to 3 s later; its copies are found alike.

Where an op record is damaged, such copies are looked for wherever they may stand.

A half that was stored again for a check is followed by the op record of the one before in the same
way. Of two halves with one unique key in one transaction the later one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.properties import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    FIRST_HALF_OFFSET,
    REAL_QID,
    REAL_TOPIC,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from storage.transactions.halves import Half, number_in
from storage.transactions.reading import NO_REMOVALS, copied_halves, read_removals
from storage.transactions.removals import HalfEnd, end_of, removed_offsets
from storage.transactions.values import TransactionState
from storage.view.queues.units import UNIT_DTYPE

if TYPE_CHECKING:
    from storage.format.record import Record
    from storage.message import Damage
    from storage.queues.consume_queue import ConsumeQueue
    from storage.transactions.log_access import TransactionLog
    from storage.transactions.progress import TransactionProgress
    from storage.transactions.reading import Removals

TAIL_BYTES: Final = 256 << 20  # of the log, which copies without an op record are looked for in
REMEMBERED_MAX: Final = 10_000  # halves that ended last
_REMOVALS_MAX: Final = 2 * REMEMBERED_MAX  # op records that are read for them
_OFFSET_DIGITS_MAX: Final = 19
_TIME_MAX_MS: Final = 1 << 53  # far from where times that are added to it overflow
_UNITS_AT_ONCE: Final = 65_536
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


class LoadedTransactions(NamedTuple):
    """What a start goes on with."""

    pending: list[Half]
    superseded: list[int]  # queue offsets of halves that are pending no more and have no op record
    copied: dict[
        str, list[Half]
    ]  # halves of which a copy is stored; their transactions are decided
    damaged: list[DamagedHalf]
    damaged_removals: tuple[Damage, ...]
    ended: dict[str, tuple[TransactionState, int]]  # by id: state, number of messages
    progress: TransactionProgress


def load_transactions(
    log: TransactionLog, progress: TransactionProgress, *, immunity_ms: int, interval_ms: int
) -> LoadedTransactions:
    """Read half queue and op records from ``progress`` on."""
    queue, removal_queue = log.half_queue(), log.removal_queue()
    half_end = 0 if queue is None else queue.next_offset
    removal_end = 0 if removal_queue is None else removal_queue.next_offset
    # The end of the log may be lost; what is stored there next has not been ended.
    half_offset = min(progress.half_offset, half_end)
    removal_offset = min(progress.removal_offset, removal_end)
    if progress != (half_offset, removal_offset):
        half_offset = removal_offset = 0
    removals, remembered = NO_REMOVALS, {}
    if removal_queue is not None:
        removals = read_removals(log.engine, removal_offset)
        remembered = _remembered(log, queue, removal_queue)
    ended_keys = _ended_keys(log, queue, removals) if removals.damaged else {}
    pending: dict[tuple[str, str], Half] = {}
    superseded: list[int] = []
    damaged: list[DamagedHalf] = []
    for queue_offset, commit_offset in _units(queue, half_offset):
        if removals.names(queue_offset):
            continue
        record = log.read_decoded(commit_offset)
        if record is None or record.queue_offset != queue_offset:
            if commit_offset >= log.engine.log.min_offset:
                damaged.append(DamagedHalf(queue_offset, commit_offset, log.read(commit_offset)[1]))
            continue
        properties = record.properties
        first = properties.get(FIRST_HALF_OFFSET, "")
        if removals.names(number_in(first, -1, digits_max=_OFFSET_DIGITS_MAX)):
            superseded.append(queue_offset)
            continue
        half = half_in(record, properties, immunity_ms=immunity_ms, interval_ms=interval_ms)
        if half is None:
            damaged.append(
                DamagedHalf(queue_offset, commit_offset, "it lacks what each half message has")
            )
            continue
        if ended_keys.get((half.transaction_id, half.unique_key), -1) > queue_offset:
            superseded.append(queue_offset)
            continue
        former = pending.get((half.transaction_id, half.unique_key))
        if former is not None:
            superseded.append(former.queue_offset)
        pending[half.transaction_id, half.unique_key] = half
    halves = list(pending.values())
    copies: set[int] = set()
    if removals.damaged:
        copies = _copies(log, halves, 0)
    elif log.engine.abort_found:
        copies = _copies(log, halves, log.engine.log.appended_offset - TAIL_BYTES)
    copied: dict[str, list[Half]] = {}
    for half in halves:
        if half.commit_offset in copies:
            copied.setdefault(half.transaction_id, []).append(half)
    return LoadedTransactions(
        pending=halves,
        superseded=superseded,
        copied=copied,
        damaged=damaged,
        damaged_removals=removals.damaged,
        ended=remembered,
        progress=progress._replace(half_offset=half_offset, removal_offset=removal_offset),
    )


def half_in(
    record: Record, properties: dict[str, str], *, immunity_ms: int, interval_ms: int
) -> Half | None:
    """Return the half that a record is, None if it lacks what each has; any text is a valid property otherwise."""
    unique_key = properties.get(UNIQ_KEY, "")
    transaction_id = properties.get(TRANSACTION_ID) or unique_key
    queue_id = number_in(properties.get(REAL_QID, ""), -1)
    if not transaction_id or REAL_TOPIC not in properties or queue_id < 0:
        return None
    if not 0 <= record.store_timestamp_ms <= _TIME_MAX_MS:
        return None
    checked = number_in(properties.get(CHECK_TIMES, ""), 0)
    immunity_s = number_in(properties.get(CHECK_IMMUNITY, ""), -1)
    wait_ms = immunity_ms if immunity_s < 0 else immunity_s * 1_000
    return Half(
        transaction_id=transaction_id,
        unique_key=unique_key,
        topic=properties[REAL_TOPIC],
        queue_id=queue_id,
        queue_offset=record.queue_offset,
        commit_offset=record.commit_offset,
        size=record.total_size,
        born_ms=record.store_timestamp_ms,  # the producer's clock may be anything
        due_ms=record.store_timestamp_ms + (interval_ms if checked else wait_ms),
        check_count=checked,
    )


def _units(queue: ConsumeQueue | None, begin: int) -> Iterator[tuple[int, int]]:
    """Yield queue offset and commit offset of each unit from ``begin`` on."""
    if queue is None:
        return
    end = queue.next_offset
    for first in range(max(begin, queue.first_offset), end, _UNITS_AT_ONCE):
        units = _read_units(queue, first, min(_UNITS_AT_ONCE, end - first))
        yield from enumerate(units["offset"].astype(np.int64).tolist(), first)


def _read_units(queue: ConsumeQueue, begin: int, count: int) -> npt.NDArray[np.void]:
    return np.frombuffer(queue.read(begin, count), UNIT_DTYPE)


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
    for state, offsets in reversed(latest):
        for offset in offsets:
            if not halves.first_offset <= offset < halves.next_offset:
                continue
            half = log.read_decoded(int(halves.unit(offset).commit_offset))
            properties = {} if half is None else half.properties
            transaction_id = properties.get(TRANSACTION_ID) or properties.get(UNIQ_KEY, "")
            if transaction_id:
                _, before = found.pop(transaction_id, (state, 0))
                found[transaction_id] = state, before + 1
    return found


def _copies(log: TransactionLog, halves: Iterable[Half], since: int) -> set[int]:
    """Return the commit offsets of halves of which a copy stands in its queue, from a commit offset on."""
    found: set[int] = set()
    oldest: dict[tuple[str, int], int] = {}
    for half in halves:
        key = half.topic, half.queue_id
        oldest[key] = min(oldest.get(key, half.commit_offset), half.commit_offset)
    for (topic, queue_id), first in oldest.items():
        found.update(copied_halves(log.engine, topic, queue_id, max(first, since)).tolist())
    return found


def _ended_keys(
    log: TransactionLog, queue: ConsumeQueue | None, removals: Removals
) -> dict[tuple[str, str], int]:
    """Return the last queue offset of removed halves, by transaction id and unique key."""
    found: dict[tuple[str, str], int] = {}
    if queue is None:
        return found
    for queue_offset in removals.removed.tolist():
        if queue.first_offset <= queue_offset < queue.next_offset:
            half = log.read_decoded(int(queue.unit(queue_offset).commit_offset))
            properties = {} if half is None else half.properties
            unique_key = properties.get(UNIQ_KEY, "")
            found[properties.get(TRANSACTION_ID) or unique_key, unique_key] = queue_offset
    return found
