"""Which queues a group's leases in a topic are of: those that the topic has now, and of its retry topics."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.leases import journal as journal_format
from storage.journal.journal import Journal
from storage.kernels.leases import columns
from storage.leases.broker_orders import BrokerOrder, BrokerOrders
from storage.leases.group_topic import GroupTopic
from storage.leases.leased_queue import Events, LeasedQueue, last_place, names_of
from storage.leases.loading import LeasedQueueName, LoadedQueue
from storage.leases.new_records import records_of
from storage.leases.owners import NO_OWNER
from storage.leases.queues import NOWHERE, Place, StoreQueues, retry_topics
from storage.leases.rows import LeaseRows
from storage.leases.values import GroupRules
from storage.message import PullResult

SHAPES_MAX: Final = 10_000  # kept, by group and topic


class Shape(NamedTuple):
    """The topics that a group's messages of a topic come from: name, incarnation and queue ids of each."""

    sources: tuple[tuple[str, int, tuple[int, ...]], ...]
    shows_all: bool


class _TakenOver(NamedTuple):
    """What a broker had handed out of a queue, and the records of it."""

    order: BrokerOrder
    result: PullResult
    records: npt.NDArray[np.int64]
    last: Place


class QueueSets:
    """Safe to use from several threads."""

    def __init__(self, queues: StoreQueues, journal: Journal, orders: BrokerOrders) -> None:
        self._queues = queues
        self._orders = orders
        self._journal = journal
        self._guard = threading.Lock()
        self._next_number = 0
        self._known: dict[GroupTopic, tuple[Shape, bool]] = {}
        self._shapes: dict[tuple[str, str], tuple[tuple[int, int], Shape]] = {}

    def shape(self, group: str, topic: str) -> Shape:
        """Return what there is now. Raises TopicNotFound."""
        queues = self._queues
        state = queues.tables_state()  # first: a change after it is seen the next time
        kept = self._shapes.get((group, topic))
        if kept is not None and kept[0] == state:
            return kept[1]
        is_in_table = queues.has_topic(topic)
        retries = [name for name in retry_topics(group, topic) if queues.has_topic(name)]
        sources = [
            (name, queues.incarnation_of(name), queues.queue_ids(name))
            for name in (topic, *retries)
        ]
        shape = Shape(tuple(sources), queues.shows_all())
        if state is not None and is_in_table:
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            self._shapes[group, topic] = state, shape
        return shape

    def fits(self, held: GroupTopic, shape: Shape, rules: GroupRules) -> bool:
        """Return whether a group's leases are of those queues already."""
        return self._known.get(held) == (shape, rules.is_orderly)

    def go_on(self, held: GroupTopic, number: int, loaded: LoadedQueue, now_ms: int) -> None:
        """Take in a queue of the journal, with what consumerOffset.json says of it by now.

        Our own last word there counts for nothing new; another one, a broker's, counts: what lies before it
        is acknowledged, and where it is lower the group was set back.
        """
        self._next_number = max(self._next_number, number + 1)
        name = loaded.name
        kinds = (name.topic, *retry_topics(name.group, name.topic))
        queue = LeasedQueue.of(number, kinds.index(name.source), loaded)
        held.queues.add(queue)
        stored = self._queues.stored_offset(name.group, name.source, name.queue_id)
        if stored is None or stored == queue.rows.committed_offset:
            return
        events = Events()
        queue.commit(stored, queue.rows.committed_offset, events, now_ms)
        queue.is_handed_back = True
        held.write(events)

    def bring_up(self, held: GroupTopic, shape: Shape, rules: GroupRules, now_ms: int) -> bool:
        """Take in queues that are new, and let go of those of a topic that was deleted.

        Returns False, with nothing done, if the group's leases in the topic were forgotten. After an error
        nothing has changed.
        """
        with self._guard, held.guard:
            if held.is_forgotten:
                return False
            incarnations = {source: incarnation for source, incarnation, _ in shape.sources}
            gone = [queue for queue in held.queues.all if _is_gone(queue, incarnations)]
            kept = [queue for queue in held.queues.all if queue not in gone]
            unchecked = [each for each in kept if shape.shows_all and not each.is_checked]
            ends = [(queue, self._lost_from(queue)) for queue in unchecked]
            new = self._missing(held, shape, rules, kept, gone)
            added = [queue for queue, _ in new] + [each for each in kept if each.is_handed_back]
            orders = [self._order(queue, rules) for queue in added]

            events = Events()  # from here on nothing is read of the store
            named: list[LeasedQueue] = []
            for queue in gone:
                events.add(journal_format.FORGOTTEN, queue.number, 0)
            for queue in kept:
                if queue.rows.is_orderly != rules.is_orderly:
                    queue.rows.set_orderly(is_orderly=rules.is_orderly, now_ms=now_ms)
                    named.append(queue)
            for queue, lost_from in ends:
                if lost_from is not None:
                    queue.drop_from(lost_from, events, now_ms)
                queue.is_checked = True
            for queue, order in zip(added, orders, strict=True):
                queue.is_handed_back = False
                if order is not None:
                    _take_over(queue, order, rules, events)
            for queue, stored in new:
                named.append(queue)
                if stored is not None:
                    queue.note_committed(stored, events)
                queue.note_next(events)
            held.have(kept + [queue for queue, _ in new], some_gone=bool(gone))
            if named or events.count:
                names = names_of(named) if named else None
                self._journal.append(held, journal_format.encode_blocks(events.encoded(), names))
            self._known[held] = (shape, rules.is_orderly)
            return True

    def _order(self, queue: LeasedQueue, rules: GroupRules) -> _TakenOver | None:
        """Return what a broker had handed out of a queue, and is not all acknowledged; None if nothing is.

        Also when the lease is over: what was acknowledged of it is done.
        """
        name, begin = queue.name, queue.rows.next_offset
        if not rules.is_orderly or queue.rows.live_count:
            return None
        order = self._orders.find(name.group, name.source, name.queue_id)
        if order is None or begin not in order.repeats:
            return None
        result = self._queues.pull(
            name.source, name.queue_id, begin, max_messages=order.last_offset + 1 - begin,
            max_bytes=1 << 62, tag_expression="",
        )  # fmt: skip
        records = records_of(result, is_orderly=True)
        last = last_place(result, records, len(records), queue, self._queues)
        # What was stored later is another message: the topic was created again, or the log lost its end.
        if last.store_timestamp_ms > order.popped_ms:
            return None
        return _TakenOver(order, result, records, last)

    def _missing(
        self, held: GroupTopic, shape: Shape, rules: GroupRules, kept: list[LeasedQueue],
        gone: list[LeasedQueue],
    ) -> list[tuple[LeasedQueue, int | None]]:  # fmt: skip
        """Return the queues that a group has no leases of yet, each with its offset in consumerOffset.json."""
        known = {(queue.name.source, queue.name.queue_id) for queue in kept}
        made_again = {(queue.name.source, queue.name.queue_id) for queue in gone}
        missing = []
        for source, incarnation, queue_ids in shape.sources:
            for queue_id in queue_ids:
                if (source, queue_id) in known:
                    continue
                begin = None
                if (source, queue_id) not in made_again:
                    begin = self._queues.begin_of(held.group, source, queue_id)
                stored = self._queues.stored_offset(held.group, source, queue_id)
                queue = self._new(held, source, queue_id, incarnation, rules, begin)
                missing.append((queue, stored))
        return missing

    def _new(
        self, held: GroupTopic, source: str, queue_id: int, incarnation: int, rules: GroupRules,
        begin: int | None,
    ) -> LeasedQueue:  # fmt: skip
        low, high = self._queues.bounds(source, queue_id)
        is_latest = begin is None and rules.begins_at_latest and source == held.topic
        if begin is None:
            begin = high if is_latest else low
        number, self._next_number = self._next_number, self._next_number + 1
        kinds = (held.topic, *retry_topics(held.group, held.topic))
        name = LeasedQueueName(held.group, held.topic, source, queue_id, incarnation)
        rows = LeaseRows(begin, is_orderly=rules.is_orderly)
        last = self._queues.place_before(source, queue_id, begin)
        queue = LeasedQueue(number, kinds.index(source), name, rows, last)
        queue.begin_offset = begin if is_latest else 0
        queue.is_checked = True
        return queue

    def _lost_from(self, queue: LeasedQueue) -> int | None:
        """Return where the queue is no more what it was, if the log has lost its end since; else None.

        Records that come after a loss have the queue offsets of those that are lost; they are stored later.
        """
        name, next_offset = queue.name, queue.rows.next_offset
        low, high = self._queues.bounds(name.source, name.queue_id)
        if queue.last == NOWHERE or low == high:
            return high if next_offset > high else None
        if next_offset <= low:
            return None
        if next_offset <= high:
            place = self._queues.place(name.source, name.queue_id, next_offset - 1)
            if place == queue.last:
                return None
        first = self._queues.first_after(name.source, name.queue_id, queue.last.store_timestamp_ms)
        first = min(first, high)
        return first if first < next_offset else None

    def end_gone(self, held: GroupTopic) -> None:
        """End the leases of queues whose topic was deleted since: nobody can acknowledge them.

        Where such a queue was stays known, and is not the group's offset any more.
        """
        sources = {queue.name.source for queue in list(held.queues.all)}
        incarnations = {source: self._queues.incarnation_of(source) for source in sources}
        with held.changing() as events:
            for queue in held.queues.all:
                if not _is_gone(queue, incarnations):
                    continue
                if queue.rows.live_count:
                    queue.reset(queue.rows.next_offset, NOWHERE, events)
                if queue.rows.committed_offset != queue.rows.group_offset:
                    queue.note_committed(queue.rows.group_offset, events)

    def forget(self, held: GroupTopic) -> None:
        """Forget a group's leases in a topic."""
        with self._guard, held.guard:
            events = Events()
            for queue in held.queues.all:
                events.add(journal_format.FORGOTTEN, queue.number, 0)
            held.queues.set([])
            held.is_forgotten = True
            held.write(events)
            self._known.pop(held, None)


def _take_over(queue: LeasedQueue, taken: _TakenOver, rules: GroupRules, events: Events) -> None:
    """Let what a broker had handed out be under a lease until then, and what was acknowledged of it be done."""
    order, result, records, last = taken
    blocking: set[int] = set()  # message groups
    for record in records:
        offset, group = int(record[columns.RECORD_OFFSET]), int(record[columns.RECORD_GROUP])
        record[columns.IS_CHOSEN] = offset in order.repeats
        # Of those that wait for another one, being handed out by the broker counts from here on.
        record[columns.RECONSUME_TIMES] = order.repeats.get(offset, 0) + (group in blocking)
        if record[columns.IS_CHOSEN]:
            blocking.add(group)
    queue.hand_out(
        result, records, len(records), last, rules=rules, now_ms=order.popped_ms,
        visible_at=order.end_ms, owner=NO_OWNER, events=events,
    )  # fmt: skip
    queue.note_next(events)


def _is_gone(queue: LeasedQueue, incarnations: Mapping[str, int]) -> bool:
    """Return whether a queue's topic was created again since."""
    name = queue.name
    return incarnations.get(name.source, name.incarnation) != name.incarnation
