"""A new generation of the journal, from what is in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from storage.format.leases.journal import (
    COMMITTED_AT,
    EVENT_COLUMNS,
    EVENTS,
    NAMES,
    encode_names,
)
from storage.journal.journal import Journal
from storage.kernels.leases import columns, replay
from storage.leases.group_topic import GroupTopic
from storage.leases.leased_queue import Events, LeasedQueue, names_of
from storage.leases.owner_renewals import PART, OwnerRenewals, add_owned

EVENTS_AT_ONCE: Final = 16_384


def write_generation(
    journal: Journal, renewals: OwnerRenewals, topics: Iterable[GroupTopic], now_ms: int
) -> None:
    """Write owners and topics one after the other, each as it is then. Raises StoreFull."""
    topics = list(topics)
    with renewals.guard:
        _forget_owners(renewals, topics, now_ms)
        lasting = renewals.owners.lasting(-1)
        if lasting:
            names = {"owners": [[number, client_id] for number, client_id, _ in lasting]}
            events = Events(len(lasting))
            for number, _, until_ms in lasting:
                add_owned(events, number, until_ms)
            journal.write([(NAMES, encode_names(names)), (EVENTS, events.encoded())])
        journal.has_moved(PART)
    for held in topics:
        with held.guard:
            if held.queues.all:
                journal.write([(NAMES, encode_names(names_of(held.queues.all)))])
            for queue in held.queues.all:
                _write_queue(journal, queue)
            journal.has_moved(held)


def _forget_owners(renewals: OwnerRenewals, topics: Iterable[GroupTopic], now_ms: int) -> None:
    """Forget clients that have no leases and have not renewed any of late."""
    kept = {number for number, _, _ in renewals.owners.lasting(now_ms)}
    for held in topics:
        with held.guard:
            for queue in held.queues.all:
                owners = np.unique(queue.rows.live[:, columns.STATE] >> columns.OWNER_BITS) - 1
                kept.update(owners.tolist())
    renewals.owners.forget(kept)


def _write_queue(journal: Journal, queue: LeasedQueue) -> None:
    rows = queue.rows
    events = np.empty((EVENTS_AT_ONCE, EVENT_COLUMNS), np.int64)
    begin, end = int(rows.bounds[columns.HEAD]), int(rows.bounds[columns.TAIL])
    while begin < end:
        begin, count = replay.note_rows(rows.rows, begin, end, queue.number, events)
        journal.write([(EVENTS, events[:count].tobytes())])
    last = Events(2)
    queue.note_next(last)
    if rows.committed_offset >= 0:
        last.add(COMMITTED_AT, queue.number, rows.committed_offset)
    journal.write([(EVENTS, last.encoded())])
