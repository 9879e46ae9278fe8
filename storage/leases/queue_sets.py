"""Which queues a group's leases in a topic are of: those that the topic has now, and of its retry topics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.lease_journal import FORGOTTEN
from storage.kernels.leases import (
    IS_CHOSEN,
    RECONSUME_TIMES,
    RECORD_GROUP,
    RECORD_OFFSET,
)
from storage.leases.broker_orders import BrokerOrder, BrokerOrders
from storage.leases.group_topic import GroupTopic
from storage.leases.journal import Changes, JournaledQueue, LeasedQueueName
from storage.leases.leased_queue import LeasedQueue
from storage.leases.queues import NOWHERE, Place, StoreQueues, retry_topics
from storage.leases.ranges import NO_OWNER, LeasedRanges
from storage.leases.receive_answer import (
    ReceiveAnswer,
    last_place,
    records_of,
)
from storage.leases.values import ReceiveQuestion
from storage.message import PullResult
from storage.tables.groups import GroupConfig

Sources = list[tuple[str, int, tuple[int, ...]]]
"""The topics that a group's messages of a topic come from: name, incarnation and queue ids of each."""


class _TakenOver(NamedTuple):
    """What a broker had handed out of a queue, and the records of it."""

    order: BrokerOrder
    result: PullResult
    records: npt.NDArray[np.int64]
    last: Place


class QueueSets:
    """Used under the lock of the leases."""

    def __init__(self, queues: StoreQueues, orders: BrokerOrders) -> None:
        self._queues = queues
        self._orders = orders
        self._next_number = 0

    def bring_up(self, held: GroupTopic, group: GroupConfig, changes: Changes, now_ms: int) -> None:
        """Give a group's leases the queues that the topic has now.

        Raises TopicNotFound. After an error nothing has changed.
        """
        reader, topic = self._queues.reader, held.topic
        state = reader.tables_state()  # first: a change after it is seen the next time
        if state is not None and held.looked_at == (state, group.orderly):
            return
        is_in_table = topic in reader.topics
        retries = [name for name in retry_topics(group.name, topic) if name in reader.topics]
        sources = [
            (name, reader.incarnation_of(name), self._queues.queue_ids(name))
            for name in (topic, *retries)
        ]
        shape = (sources, reader.shows_all(), group.orderly)
        if held.shape != shape:
            self._change(held, sources, group, changes, now_ms)
            held.shape = shape
        held.looked_at = (state, group.orderly) if is_in_table else None

    def restored(self, kept: JournaledQueue, changes: Changes, now_ms: int) -> LeasedQueue:
        """Return a queue of the journal, with what consumerOffset.json says of it by now.

        Our own last word there counts for nothing new; another one, a broker's, counts: what lies before it
        is acknowledged, and where it is lower the group was set back.
        """
        self._next_number = max(self._next_number, kept.number + 1)
        queue = LeasedQueue.of(kept)
        name = queue.name
        stored = self._queues.offsets.fetch(name.group, name.source, name.queue_id)
        if stored is not None and stored != queue.committed_offset:
            queue.commit(stored, queue.committed_offset, changes, now_ms)
            queue.is_handed_back = True
        return queue

    def _change(
        self, held: GroupTopic, sources: Sources, group: GroupConfig, changes: Changes, now_ms: int
    ) -> None:
        """Take in queues that are new, and let go of those of a topic that was deleted."""
        incarnations = {source: incarnation for source, incarnation, _ in sources}
        kept: list[LeasedQueue] = []
        gone: list[LeasedQueue] = []
        for queue in held.queues:
            name = queue.name
            is_gone = incarnations.get(name.source, name.incarnation) != name.incarnation
            (gone if is_gone else kept).append(queue)
        shows_all = self._queues.reader.shows_all()
        unchecked = [each for each in kept if shows_all and not each.is_checked]
        ends = [(queue, self._lost_from(queue)) for queue in unchecked]
        new = self._missing(held, sources, group, kept, gone)
        added = [queue for queue, _ in new] + [each for each in kept if each.is_handed_back]
        orders = [self._order(queue, group) for queue in added]

        for queue in gone:  # from here on nothing is read of the store
            changes.note(FORGOTTEN, queue, 0)
        for queue in kept:
            if queue.ranges.is_orderly != group.orderly:
                queue.ranges.set_orderly(is_orderly=group.orderly, now_ms=now_ms)
                changes.name(queue)
        for queue, lost_from in ends:
            if lost_from is not None:
                queue.drop_from(lost_from, changes, now_ms)
            queue.is_checked = True
        for queue, stored in new:
            changes.name(queue)
            if stored is not None:
                queue.note_committed(stored, changes)
            queue.note_next(changes)
        for queue, order in zip(added, orders, strict=True):
            queue.is_handed_back = False
            if order is not None:
                _take_over(queue, order, group, changes)
        held.set_queues(kept + [queue for queue, _ in new])

    def _order(self, queue: LeasedQueue, group: GroupConfig) -> _TakenOver | None:
        """Return what a broker had handed out of a queue, and is not all acknowledged; None if nothing is.

        Also when the lease is over: what was acknowledged of it is done.
        """
        name, begin = queue.name, queue.ranges.next_offset
        if not group.orderly or queue.ranges.live_count:
            return None
        order = self._orders.find(name.group, name.source, name.queue_id)
        if order is None or begin not in order.repeats:
            return None
        result = self._queues.reader.pull(
            name.source, name.queue_id, queue_offset=begin,
            max_messages=order.last_offset + 1 - begin, max_bytes=1 << 62,
        )  # fmt: skip
        records = records_of(result, is_orderly=True)
        last = last_place(result, records, queue, self._queues)
        # What was stored later is another message: the topic was created again, or the log lost its end.
        if last.store_timestamp_ms > order.popped_ms:
            return None
        return _TakenOver(order, result, records, last)

    def _missing(
        self, held: GroupTopic, sources: Sources, group: GroupConfig, kept: list[LeasedQueue],
        gone: list[LeasedQueue],
    ) -> list[tuple[LeasedQueue, int | None]]:  # fmt: skip
        """Return the queues that a group has no leases of yet, each with its offset in consumerOffset.json."""
        known = {(queue.name.source, queue.name.queue_id) for queue in kept}
        created_again = {(queue.name.source, queue.name.queue_id) for queue in gone}
        missing = []
        for source, incarnation, queue_ids in sources:
            for queue_id in queue_ids:
                if (source, queue_id) in known:
                    continue
                begin = None
                if (source, queue_id) not in created_again:
                    begin = self._queues.reader.committed_offset(held.group, source, queue_id)
                begin_offset = 0
                if begin is None:
                    low, begin = self._queues.bounds(source, queue_id)
                    begin_offset = begin
                    if group.begin != "latest" or source != held.topic:
                        begin, begin_offset = low, 0
                stored = self._queues.offsets.fetch(held.group, source, queue_id)
                queue = LeasedQueue(
                    self._next_number,
                    LeasedQueueName(held.group, held.topic, source, queue_id, incarnation),
                    LeasedRanges(begin, is_orderly=group.orderly),
                    self._queues.place_before(source, queue_id, begin),
                )
                queue.begin_offset = begin_offset
                queue.is_checked = True
                self._next_number += 1
                missing.append((queue, stored))
        return missing

    def _lost_from(self, queue: LeasedQueue) -> int | None:
        """Return where the queue is no more what it was, if the log has lost its end since; else None.

        Records that come after a loss have the queue offsets of those that are lost; they are stored later.
        """
        name, next_offset = queue.name, queue.ranges.next_offset
        low, high = self._queues.bounds(name.source, name.queue_id)
        if queue.last == NOWHERE or low == high:
            return high if next_offset > high else None
        if next_offset <= low:
            return None
        if next_offset <= high:
            place = self._queues.place(name.source, name.queue_id, next_offset - 1)
            if place == queue.last:
                return None
        first = self._queues.reader.offset_by_time(
            name.source, name.queue_id, timestamp_ms=queue.last.store_timestamp_ms + 1
        )
        first = min(first, high)
        return first if first < next_offset else None


def _take_over(queue: LeasedQueue, taken: _TakenOver, group: GroupConfig, changes: Changes) -> None:
    """Let what a broker had handed out be under a lease until then, and what was acknowledged of it be done."""
    order, result, records, last = taken
    blocking: set[int] = set()  # message groups
    for record in records:
        offset, message_group = int(record[RECORD_OFFSET]), int(record[RECORD_GROUP])
        record[IS_CHOSEN] = offset in order.repeats
        # Of those that wait for another one, being handed out by the broker counts from here on.
        record[RECONSUME_TIMES] = order.repeats.get(offset, 0) + (message_group in blocking)
        if record[IS_CHOSEN]:
            blocking.add(message_group)
    answer = ReceiveAnswer(ReceiveQuestion(), order.popped_ms, order.end_ms, NO_OWNER, changes)
    queue.hand_out(result, records, last, answer, group)
    queue.note_next(changes)
