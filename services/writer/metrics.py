"""Families about the writer: what it appends, how far log and queues are, the disk, delayed and half messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Final

from prometheus_client.core import Metric

from services.metrics.exposition import (
    REST,
    Row,
    bounded,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    with_rest,
)
from services.metrics.names import is_system, message_type
from storage.format.consume_entry import SCHEDULE_TOPIC
from storage.format.names import DLQ_PREFIX, TIMER_TOPIC
from storage.tables.topics import TopicConfig
from storage.writer import StoreWriter, WriterStatus

STORAGE: Final = ("storage_type", "storage_medium")
_LOCAL: Final = ("local", "disk")
_READ_WRITE: Final = 6  # what a broker says of its permission; 4: read
_READ: Final = 4
SNAPSHOT_SECONDS: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)  # a broker's
Appended = Mapping[bytes, tuple[int, int]]


class WriterCollector:
    """``waiting`` says how many calls wait for a sync, or whatever acknowledges them."""

    def __init__(self, store: StoreWriter, waiting: Callable[[], int]) -> None:
        self._store = store
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        store = self._store
        topics = {topic.name: topic for topic in store.list_topics()}
        appended = store.counts.appended()
        status = store.status()
        yield from _traffic(appended, topics)
        yield from self._log(status)
        yield from self._times()
        yield from self._disk()
        yield from self._delayed(appended)
        yield from self._transactions(status)
        yield from self._damage(status)

    def _log(self, status: WriterStatus) -> Iterator[Metric]:
        offsets = self._store.counts.offsets()
        appended = offsets["appended"]
        yield gauge(
            "penstock_writable",
            "1 while messages are accepted, 0 after a failure.",
            status.writable,
        )
        yield gauges(
            "rocketmq_broker_permission", "6: reads and writes; 4: reads alone.", (),
            [((), _READ_WRITE if status.writable else _READ)],
        )  # fmt: skip
        yield gauges(
            "penstock_log_offset_bytes", "Positions of the log: commit offsets, each an end.", ("position",),
            [((name,), offset) for name, offset in offsets.items()],
        )  # fmt: skip
        yield gauges(
            "penstock_log_behind_bytes", "How far each position is behind what is appended.", ("position",),
            [
                ((name,), appended - offset)
                for name, offset in offsets.items() if name not in ("minimum", "appended")
            ],
        )  # fmt: skip
        yield gauges(
            "penstock_log_needed_bytes", "How much of the log's end each follower still needs.", ("follower",),
            [((name,), max(0, appended - offset)) for name, offset in status.followers.items()],
        )  # fmt: skip
        yield gauges(
            "rocketmq_storage_flush_behind_bytes", "Bytes appended that no sync has covered.", STORAGE,
            [(_LOCAL, appended - offsets["flushed"])],
        )  # fmt: skip
        yield gauges(
            "rocketmq_storage_dispatch_behind_bytes", "Bytes confirmed that consumers cannot see.", STORAGE,
            [(_LOCAL, max(0, offsets["confirmed"] - offsets["dispatched"]))],
        )  # fmt: skip
        oldest_ms = self._store.counts.oldest_ms()
        yield gauges(
            "rocketmq_storage_message_reserve_time", "Age of the oldest record, in milliseconds.", STORAGE,
            [(_LOCAL, max(0, _now_ms() - oldest_ms))] if oldest_ms > 0 else [],
        )  # fmt: skip

    def _times(self) -> Iterator[Metric]:
        counts = self._store.counts
        yield from starmap(histogram, (
            ("penstock_append_seconds", "Appends, of one message or a batch, the wait for the lock included.", counts.append),
            ("penstock_flush_seconds", "From an append until it was durable, of one in a while.", counts.flush),
            ("penstock_dispatch_seconds", "From an append until consumers could see it, of one in a while.", counts.dispatch),
            ("penstock_sync_seconds", "Syncs of the log.", counts.sync),
            ("penstock_checkpoint_seconds", "Checkpoints: syncs of queues.", counts.checkpoint),
        ))  # fmt: skip
        waiting = self._waiting()
        yield gauge(
            "penstock_acknowledgements_waiting", "Calls and batches that wait for a sync.", waiting
        )
        yield gauges(
            "rocketmq_processor_watermark", "Calls that wait, by what for.", ("processor",),
            [(("send",), waiting)],
        )  # fmt: skip

    def _disk(self) -> Iterator[Metric]:
        report = self._store.retention.report()
        space = self._store.counts.disk_space()
        yield gauges(
            "rocketmq_storage_size", "Bytes used of the store's disk.", STORAGE,
            [(_LOCAL, space.used_bytes)],
        )  # fmt: skip
        yield gauges(
            "penstock_disk_limit_ratio",
            "Use from which on expired files go at any hour, any file goes, and appends are refused.",
            ("limit",),
            [
                (("clean",), report.clean_percent / 100), (("force",), report.force_percent / 100),
                (("refuse",), report.refuse_percent / 100),
            ],
        )  # fmt: skip
        yield from starmap(gauge, (
            ("penstock_disk_used_bytes", "Bytes used of the disk that the log is on.", space.used_bytes),
            ("penstock_disk_usable_bytes", "Bytes of it that may be used yet.", space.usable_bytes),
            ("penstock_disk_used_ratio", "The fuller of the log's and the queues' disk.", report.used_percent / 100),
            ("penstock_appends_refused", "1 while appends are refused because the disk is full.", report.refuses_appends),
            ("penstock_log_files", "Files of the log.", len(report.files)),
            ("penstock_log_bytes", "Size of the log's files.", sum(each.size_bytes for each in report.files)),
        ))  # fmt: skip
        yield from starmap(counter, (
            ("penstock_deleted_files_total", "Files of the log that retention deleted.", report.deleted_file_count),
            ("penstock_deleted_bytes_total", "Bytes of the log that retention deleted.", report.deleted_bytes),
        ))  # fmt: skip

    def _delayed(self, appended: Appended) -> Iterator[Metric]:
        timers = self._store.timers.status([1_000 * seconds for seconds in SNAPSHOT_SECONDS])
        yield gauges(
            "rocketmq_timing_messages", "Delayed messages that wait for their time.", (*STORAGE, "topic"),
            [((*_LOCAL, REST), timers.pending_count)],
        )  # fmt: skip
        yield gauges(
            "rocketmq_timer_dequeue_latency", "How late the next due message is, in milliseconds.", STORAGE,
            [(_LOCAL, timers.late_ms)],
        )  # fmt: skip
        before = (0, *timers.due_counts)
        yield gauges(
            "rocketmq_timer_message_snapshot", "Delayed messages due within so many seconds, but not within fewer.",
            (*STORAGE, "timer_bound_s"),
            [
                ((*_LOCAL, str(seconds)), count - less)
                for seconds, count, less in zip(SNAPSHOT_SECONDS, timers.due_counts, before, strict=False)
            ],
        )  # fmt: skip
        parked = sum(
            appended.get(topic.encode(), (0, 0))[0] for topic in (TIMER_TOPIC, SCHEDULE_TOPIC)
        )
        yield counters(
            "rocketmq_timer_enqueue_total", "Messages and recalls that began to wait for their time.",
            (*STORAGE, "topic"), [((*_LOCAL, REST), parked)],
        )  # fmt: skip
        yield counters(
            "rocketmq_timer_dequeue_total", "Delayed messages that were delivered.",
            (*STORAGE, "topic"), [((*_LOCAL, REST), timers.counts.delivered)],
        )  # fmt: skip
        yield counters(
            "penstock_due_messages_total", "What became of delayed messages.", ("outcome",),
            [
                (("delivered",), timers.counts.delivered), (("recalled",), timers.counts.recalled),
                (("repeated",), timers.counts.repeated), (("topic_deleted",), timers.counts.topic_deleted),
                (("damaged",), timers.counts.damaged),
            ],
        )  # fmt: skip

    def _transactions(self, status: WriterStatus) -> Iterator[Metric]:
        transactions = self._store.transactions
        yield gauges(
            "rocketmq_half_messages", "Half messages that are pending.", ("topic",),
            _by_topic(transactions.table.topic_counts()),
        )  # fmt: skip
        for name, commit in (("commit", True), ("rollback", False)):
            yield counters(
                f"rocketmq_{name}_messages_total", f"Half messages that ended with a {name}.", ("topic",),
                _by_topic(transactions.ended_counts(commit=commit)),
            )  # fmt: skip
        oldest_ms = status.halves.oldest_ms
        yield gauge(
            "penstock_half_oldest_seconds", "Age of the oldest pending half message, 0: there is none.",
            max(0, _now_ms() - oldest_ms) / 1e3 if oldest_ms else 0,
        )  # fmt: skip

    def _damage(self, status: WriterStatus) -> Iterator[Metric]:
        scrub = status.scrub
        rebuilt = self._store.counts.rebuilt_unit_count
        yield from starmap(counter, (
            ("penstock_scrub_findings_total", "Damages that the scrub found.", scrub.finding_count),
            ("penstock_scrub_repaired_units_total", "Units that it made right.", scrub.repaired_count),
            ("penstock_rebuilt_units_total", "Units of queues that were written again from the log.", rebuilt),
        ))  # fmt: skip
        remaining, completed_s = scrub.end - scrub.position, scrub.completed_ms / 1e3
        yield from starmap(gauge, (
            ("penstock_scrub_remaining_bytes", "Bytes that a scrub under way has to read.", remaining),
            ("penstock_scrub_completed_timestamp_seconds", "When the last scrub ended, 0: never.", completed_s),
        ))  # fmt: skip


def _traffic(appended: Appended, topics: Mapping[str, TopicConfig]) -> Iterator[Metric]:
    """What was appended, by topic."""
    some, rest = bounded([(name.decode(), *counts) for name, counts in appended.items()])
    labels = ("topic", "message_type", "is_system")
    known = [
        ((name, message_type(topics.get(name)), is_system(name)), count, size)
        for name, count, size in some
    ]
    if rest:
        known.append(
            ((REST, "normal", "false"), sum(row[1] for row in rest), sum(row[2] for row in rest))
        )
    yield counters(
        "rocketmq_messages_in_total", "Records that were appended for a topic.", labels,
        [(values, count) for values, count, _ in known],
    )  # fmt: skip
    yield counters(
        "rocketmq_throughput_in_total", "Bytes of these records in the log.", labels,
        [(values, size) for values, _, size in known],
    )  # fmt: skip
    yield counters(
        "rocketmq_send_to_dlq_messages_total", "Dead letters that were appended for a group.",
        ("topic", "consumer_group", "is_system"),
        [
            ((name, name.removeprefix(DLQ_PREFIX), "false"), count)
            for name, count, _ in some if name.startswith(DLQ_PREFIX)
        ],
    )  # fmt: skip
    yield gauges("rocketmq_topic_number", "Topics.", (), [((), len(topics))])


def _by_topic(counts: Mapping[str, int]) -> Sequence[Row]:
    return with_rest([((topic,), count) for topic, count in counts.items()], 1)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
