"""Families about the reader: what goes out, who waits, where groups are, how far the index is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

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
from services.metrics.names import is_system
from services.reader.budget import Budget
from services.reader.leasing import Leasing
from services.reader.source import Source
from services.reader.traffic import Traffic
from storage.errors import StoreError
from storage.format.names import RETRY_PREFIX
from storage.leases.queues import StoreQueues

_GROUP_LABELS = ("consumer_group", "topic", "is_retry", "is_system")


@dataclass(slots=True)
class GroupLag:
    """Where a group is in a topic: messages, and when the oldest was stored, 0: there is none."""

    undone: int = 0
    leased: int = 0
    ready: int = 0
    undone_since_ms: int = 0
    ready_since_ms: int = 0


class ReaderCollector:
    """Reads the store in the scrape's own thread."""

    def __init__(
        self, source: Source, leasing: Leasing, traffic: Traffic, arrivals: Arrivals, budget: Budget
    ) -> None:
        self._source = source
        self._reader = source.reader
        self._queues = StoreQueues(source.reader)
        self._leasing = leasing
        self._traffic = traffic
        self._arrivals = arrivals
        self._budget = budget

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
        status = self._source.status()
        yield gauge(
            "penstock_writer_alive", "1 while a writer has the store.", status["writer_alive"]
        )
        yield gauge(
            "penstock_visible_offset_bytes",
            "Commit offset up to which records are served.",
            status["visible_offset"],
        )
        yield gauge(
            "penstock_index_behind_bytes", "Bytes of the log that are visible and not found by key yet.",
            max(0, status["visible_offset"] - status["indexed_offset"]),
        )  # fmt: skip
        pulls, receives = self._arrivals.waiting_count, self._leasing.waiting_count
        yield gauges(
            "penstock_waiting_calls", "Calls that wait for messages.", ("kind",),
            [(("pull",), pulls), (("receive",), receives)],
        )  # fmt: skip
        yield gauges(
            "rocketmq_processor_watermark",
            "Calls that wait, by what for.",
            ("processor",),
            [(("pull",), pulls + receives)],
        )
        yield gauge(
            "penstock_stream_bytes",
            "Bytes of answers that wait for the callers of streams.",
            self._budget.taken,
        )
        yield gauge(
            "penstock_lease_journal_bytes",
            "Size of the journal of leases.",
            self._leasing.journal_bytes,
        )

    def _groups(self) -> Iterator[Metric]:
        names, lags = self._lags()
        now_ms = time.time_ns() // 1_000_000

        def rows(value: str) -> list[Row]:
            return [(labels, getattr(lag, value)) for labels, lag in lags]

        def ages(value: str) -> list[Row]:
            return [
                (labels, max(0, now_ms - since) if since else 0) for labels, since in rows(value)
            ]

        yield gauges("rocketmq_consumer_group_number", "Consumer groups.", (), [((), len(names))])
        yield gauges(
            "rocketmq_consumer_lag_messages",
            "Messages that are not done.",
            _GROUP_LABELS,
            rows("undone"),
        )
        yield gauges(
            "rocketmq_consumer_lag_latency",
            "Age of the oldest one, in milliseconds.",
            _GROUP_LABELS,
            ages("undone_since_ms"),
        )
        yield gauges(
            "rocketmq_consumer_inflight_messages",
            "Messages under a lease.",
            _GROUP_LABELS,
            rows("leased"),
        )
        yield gauges(
            "rocketmq_consumer_ready_messages",
            "Messages that were never handed out.",
            _GROUP_LABELS,
            rows("ready"),
        )
        yield gauges(
            "rocketmq_consumer_queueing_latency",
            "Age of the oldest one, in milliseconds.",
            _GROUP_LABELS,
            ages("ready_since_ms"),
        )

    def _lags(self) -> tuple[set[str], list[tuple[tuple[str, ...], GroupLag]]]:
        """Return the names of all groups, and where each is in its topics; those beyond the most together."""
        reader, found = self._reader, dict[tuple[str, str], GroupLag]()
        names = {group.name for group in reader.groups.all()}
        ends: dict[tuple[str, int], int] = {}
        seen: set[tuple[str, str, int]] = set()

        def add(
            group: str, topic: str, queue_id: int, done: int, handed_out: int, out: tuple[int, int]
        ) -> None:
            place = topic, queue_id
            if (end := ends.get(place)) is None:
                end = ends[place] = self._queues.bounds(*place)[1]
            key = (
                (group, topic)
                if (group, topic) in found or len(found) < SERIES_MAX
                else (REST, REST)
            )
            lag = found.setdefault(key, GroupLag())
            ready = max(0, end - handed_out)
            undone = ready + sum(out)
            lag.undone, lag.leased, lag.ready = (
                lag.undone + undone,
                lag.leased + out[0],
                lag.ready + ready,
            )
            if undone:
                lag.undone_since_ms = self._older(lag.undone_since_ms, topic, queue_id, done)
            if ready:
                lag.ready_since_ms = self._older(lag.ready_since_ms, topic, queue_id, handed_out)

        for group, _, queues in paced(self._leasing.all_progress()):
            names.add(group)
            for queue in queues:
                seen.add((group, queue.topic, queue.queue_id))
                out = queue.leased_count, queue.waiting_count
                add(group, queue.topic, queue.queue_id, queue.group_offset, queue.next_offset, out)
        for group in reader.consumer_offsets.groups():
            names.add(group)
            for topic, offsets in paced(reader.consumer_offsets.fetch_group(group).items()):
                for queue_id, offset in offsets.items():
                    if (group, topic, queue_id) not in seen:
                        add(group, topic, queue_id, offset, offset, (0, 0))
        return names, [
            ((group, topic, _text(topic.startswith(RETRY_PREFIX)), is_system(topic, group)), lag)
            for (group, topic), lag in found.items()
        ]

    def _older(self, before_ms: int, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the earlier of a time, 0: none, and of when a record was stored, if that can be read."""
        try:
            stored_ms = self._queues.place(topic, queue_id, queue_offset).store_timestamp_ms
        except (StoreError, OSError):
            return before_ms
        return min(before_ms or stored_ms, stored_ms) if stored_ms > 0 else before_ms


def _text(flag: bool) -> str:
    return "true" if flag else "false"
