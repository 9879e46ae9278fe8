"""Families about the reader: what goes out, who waits, where groups are, how far the index is."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import starmap
from typing import Final, NamedTuple

from prometheus_client.core import Metric

from services.arrivals import Arrivals
from services.metrics.exposition import (
    REST,
    SERIES_MAX,
    Row,
    counters,
    gauge,
    gauges,
    paced,
)
from services.metrics.names import flag, is_system
from services.reader.budget import Budget
from services.reader.catch_up import CatchUp
from services.reader.lease_servicer import LeaseServicer
from services.reader.traffic import Traffic
from storage.errors import QueueNotFound, TopicNotFound
from storage.format.names import RETRY_PREFIX
from storage.leases.values import QueueLeases
from storage.reader import StoreReader
from storage.tables.consumer_offsets import topic_and_group

GROUP_LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")
WAIT_S: Final = 0.05  # for groups' numbers of now
REST_RATIO: Final = 19.0
"""So many times as long as a look at the groups took nobody looks again: that is a twentieth of a core."""


@dataclass(slots=True)
class TopicLag:
    """Where a group is in a topic: messages, and when the oldest was stored, 0: there is none."""

    undone: int = 0
    done: int = 0  # sum of the offsets before which all is done
    leased: int = 0
    ready: int = 0
    undone_since_ms: int = 0
    ready_since_ms: int = 0


class GroupsSeen(NamedTuple):
    """The names of all groups, where each is in its topics, and when that was so: Unix ms."""

    names: set[str]
    lags: Sequence[tuple[tuple[str, ...], TopicLag]]
    at_ms: int


class GroupLags:
    """Where all groups are in all topics, looked at in ``thread``, which is one thread of its own."""

    def __init__(self, reader: StoreReader, leasing: LeaseServicer, thread: Executor) -> None:
        self._reader = reader
        self._leasing = leasing
        self._thread = thread
        self._guard = threading.Lock()
        self._looking: Future[GroupsSeen] | None = None
        self._looks_again_at = 0.0
        self._times: dict[tuple[str, int, int], int] = {}  # of records that are the oldest ones
        self._ends: dict[tuple[str, int], int] = {}
        self._seen: tuple[object, ...] = ()  # what they are of
        self.seconds = 0.0  # that the last look took

    def latest(self) -> Future[GroupsSeen]:
        """Return where groups are, or were a moment ago. Raises StoreClosed once the reader is at its end."""
        with self._guard:
            looking = self._looking
            if looking is None or (looking.done() and time.monotonic() >= self._looks_again_at):
                looking = self._looking = self._thread.submit(self._look)
            return looking

    def _look(self) -> GroupsSeen:
        seen = self.look()
        self._looks_again_at = time.monotonic() + REST_RATIO * self.seconds
        return seen

    def look(self) -> GroupsSeen:
        """Look at all groups in all topics; those beyond the most are together."""
        begun = time.monotonic()
        places = list(self._places())
        names = {group for group, _ in places} | {each.name for each in self._reader.groups.all()}
        ends = self._ends_of({place.topic for _, place in places})
        times: dict[tuple[str, int, int], int] = {}
        found: dict[tuple[str, str], TopicLag] = {}
        for group, place in paced(places):
            key = group, place.topic
            if key not in found and len(found) >= SERIES_MAX:
                key = REST, REST
            lag = found.setdefault(key, TopicLag())
            end = ends.get((place.topic, place.queue_id), 0)
            ready = max(0, end - place.next_offset)
            undone = ready + place.leased_count + place.waiting_count
            lag.undone += undone
            lag.ready += ready
            lag.leased += place.leased_count
            lag.done += place.group_offset
            if undone:
                since = self._time(times, place.topic, place.queue_id, place.group_offset)
                lag.undone_since_ms = _older(lag.undone_since_ms, since)
            if ready:
                since = self._time(times, place.topic, place.queue_id, place.next_offset)
                lag.ready_since_ms = _older(lag.ready_since_ms, since)
        self._times = times
        self.seconds = time.monotonic() - begun
        lags = [
            ((group, topic, flag(topic.startswith(RETRY_PREFIX)), is_system(topic, group)), lag)
            for (group, topic), lag in found.items()
        ]
        return GroupsSeen(names, lags, time.time_ns() // 1_000_000)

    def _ends_of(self, topics: set[str]) -> dict[tuple[str, int], int]:
        """Return where the queues of topics end; while nothing has come since the last look, what it found."""
        state = self._reader.visible_offset, self._reader.tables_state(), topics
        if state != self._seen:
            pauses = iter(paced(itertools.repeat(True)))
            extents = self._reader.queue_extents(topics, is_wanted=lambda: next(pauses))
            self._ends = {(each.topic, each.queue_id): each.max_offset for each in extents}
            self._seen = state
        return self._ends

    def _places(self) -> Iterator[tuple[str, QueueLeases]]:
        """Yield where groups are: by their leases, and by their offsets where they have none."""
        leased: set[tuple[str, str, int]] = set()
        for group, _, queues in paced(self._leasing.leases.all_progress()):
            for queue in queues:
                leased.add((group, queue.topic, queue.queue_id))
                yield group, queue
        for key, offsets in paced(self._reader.consumer_offsets.table.items()):
            topic, group = topic_and_group(key)
            for queue_id, offset in offsets.items():
                if (group, topic, queue_id) not in leased:
                    yield group, QueueLeases(topic, queue_id, offset, offset, 0, 0)

    def _time(
        self, times: dict[tuple[str, int, int], int], topic: str, queue_id: int, queue_offset: int
    ) -> int:
        """Return when a record was stored, at most 0 if that cannot be read; it is read once."""
        key = topic, queue_id, queue_offset
        found = times.get(key) or self._times.get(key)
        if found is None:
            try:
                found = self._reader.store_time_ms(*key)
            except (TopicNotFound, QueueNotFound, OSError):
                found = 0
        times[key] = found
        return found


class ReaderCollector:
    """Reads the store in the scrape's thread; it waits ``WAIT_S`` for where groups are, or shows what was so last."""

    def __init__(
        self, reader: StoreReader, catch_up: CatchUp, leasing: LeaseServicer, traffic: Traffic,
        arrivals: Arrivals, budget: Budget, lags: GroupLags,
    ) -> None:  # fmt: skip
        self._reader = reader
        self._catch_up = catch_up
        self._leasing = leasing
        self._traffic = traffic
        self._arrivals = arrivals
        self._budget = budget
        self._lags = lags
        self._seen: GroupsSeen | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield from self._out()
        yield from self._state()
        yield from self._groups()

    def _out(self) -> Iterator[Metric]:
        counts = self._traffic.counts()
        labels = "topic", "consumer_group", "is_system"
        rows = [
            ((topic, group, is_system(topic, group)), each)
            for (topic, group), each in paced(counts)
        ]
        yield counters(
            "rocketmq_messages_out_total", "Records that consumers were sent.", labels,
            [(values, each[0]) for values, each in rows],
        )  # fmt: skip
        yield counters(
            "rocketmq_throughput_out_total", "Bytes of the answers with these records.", labels,
            [(values, each[1]) for values, each in rows],
        )  # fmt: skip

    def _state(self) -> Iterator[Metric]:
        visible_offset = self._reader.visible_offset
        behind = max(0, visible_offset - self._reader.indexed_offset)
        journal_bytes = self._leasing.leases.journal_bytes
        yield from starmap(gauge, (
            ("penstock_writer_alive", "1 while a writer has the store.", self._catch_up.writer_is_alive()),
            ("penstock_visible_offset_bytes", "Commit offset up to which records are served.", visible_offset),
            ("penstock_index_behind_bytes", "Bytes of the log that are visible and not found by key yet.", behind),
            ("penstock_stream_bytes", "Bytes of answers that wait for the callers of streams.", self._budget.taken),
            ("penstock_lease_journal_bytes", "Size of the journal of leases.", journal_bytes),
        ))  # fmt: skip
        pulls, receives = self._arrivals.waiting_count, self._leasing.waiting_count
        yield gauges(
            "penstock_waiting_calls", "Calls that wait for messages.", ("kind",),
            [(("pull",), pulls), (("receive",), receives)],
        )  # fmt: skip
        yield gauges(
            "rocketmq_processor_watermark", "Calls that wait, by what for.", ("processor",),
            [(("pull",), pulls + receives)],
        )  # fmt: skip

    def _groups(self) -> Iterator[Metric]:
        with suppress(TimeoutError):
            self._seen = self._lags.latest().result(WAIT_S)
        if self._seen is None:
            return
        names, lags, _ = self._seen
        now_ms = time.time_ns() // 1_000_000

        def rows(value: str) -> list[Row]:
            return [(labels, getattr(lag, value)) for labels, lag in lags]

        def ages(value: str) -> list[Row]:
            return [
                (labels, max(0, now_ms - since) if since else 0) for labels, since in rows(value)
            ]

        yield gauges("rocketmq_consumer_group_number", "Consumer groups.", (), [((), len(names))])
        families = (
            ("rocketmq_consumer_lag_messages", "Messages that are not done.", rows("undone")),
            ("rocketmq_consumer_lag_latency", "Age of the oldest one, in milliseconds.", ages("undone_since_ms")),
            ("rocketmq_consumer_inflight_messages", "Messages under a lease.", rows("leased")),
            ("rocketmq_consumer_ready_messages", "Messages that were never handed out.", rows("ready")),
            ("rocketmq_consumer_queueing_latency", "Age of the oldest one, in milliseconds.", ages("ready_since_ms")),
        )  # fmt: skip
        for name, meaning, values in families:
            yield gauges(name, meaning, GROUP_LABELS, values)


def _older(before_ms: int, stored_ms: int) -> int:
    """Return the earlier of two times, 0 where neither is known."""
    return min(before_ms or stored_ms, stored_ms) if stored_ms > 0 else before_ms
