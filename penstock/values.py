"""Results of calls, as frozen values; times are Unix milliseconds, sizes bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.message import Damage, Message, PullStatus, QueueRange, UncoveredRange
from storage.retention.report import RetainedFile, RetentionReport

if TYPE_CHECKING:
    from penstock.record import Records

__all__ = [
    "Damage",
    "GroupOffset",
    "IndexerStatus",
    "Message",
    "OffsetRange",
    "PullResult",
    "PullStatus",
    "QueueRange",
    "ReaderStatus",
    "RetainedFile",
    "RetentionReport",
    "Stored",
    "StoredBatch",
    "StoredQueue",
    "TimerCounts",
    "Topic",
    "TopicDescription",
    "UncoveredRange",
    "WriterStatus",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where one message was stored.

    Messages of a record batch have no ``message_id`` and ``unique_key``; ``commit_offset`` finds them too. It
    is -1 if the writer stored the batch with other record sizes than the client sent, or in two parts. A
    delayed message has ``queue_offset`` -1 and, unless it has a delay level, a ``recall_handle``.
    ``repeated``: an earlier attempt had stored it.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_offset: int
    store_timestamp_ms: int
    message_id: str = ""
    unique_key: str = ""
    recall_handle: str = ""
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCounts:
    """Delayed messages that wait, and outcomes of others since the writer's start.

    ``due_within_s`` counts those that are due within so many seconds; ``next_due_ms`` is 0 if no message
    waits.
    """

    pending_count: int
    next_due_ms: int
    due_within_s: Mapping[float, int]
    delivered_count: int
    recalled_count: int
    topic_deleted_count: int
    damaged_count: int
    repeated_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """Where a record batch was stored: ``[commit_offset, end_commit_offset)``.

    ``repeated``: an earlier attempt had stored it. If that one was cut short, records of others may lie
    between, and a queue has two ranges.
    """

    commit_offset: int
    end_commit_offset: int
    record_count: int
    store_timestamp_ms: int
    ranges: tuple[QueueRange, ...]
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """The rows of a table that are stored, from its first one on; ``batches`` are those of this call."""

    row_count: int
    batches: tuple[StoredBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """Answer to a pull: the records met, and where to go on.

    ``damaged`` has the records whose bytes are not what was stored; ``records`` leaves them out.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: Records
    damaged: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """A queue offset that was asked for, and the range the queue holds."""

    queue_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A consumer group's progress in one queue; ``queue_offset`` is the next one to consume."""

    topic: str
    queue_id: int
    queue_offset: int
    min_offset: int
    max_offset: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic; ``perm`` is 2 for writing plus 4 for reading."""

    name: str
    read_queue_count: int
    write_queue_count: int
    perm: int
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic and the ``[min_offset, max_offset)`` of each of its queues, by queue id."""

    topic: Topic
    queues: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQueue:
    """A queue of which ``[min_offset, max_offset)`` can be pulled; its records lie within the commit offsets, 0: none."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    min_commit_offset: int
    end_commit_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStatus:
    """The writer's positions in the commit log, whether it takes writes, and what it has that is not shown yet.

    Delayed messages and messages of transactions are pending; times are Unix milliseconds, 0: none. ``held_by`` needs
    the log from ``needed_commit_offset`` on, which retention keeps. ``stored_record_count`` is since the writer's
    start, but for topics that were deleted.
    """

    min_commit_offset: int
    appended_offset: int
    committed_offset: int
    flushed_offset: int
    dispatched_offset: int
    writable: bool
    problem: str
    flush_mode: str
    transient_pool: bool
    scrub_position: int
    scrub_end: int
    scrub_completed_ms: int
    scrub_finding_count: int
    scrub_repaired_count: int
    scrub_last_finding: str
    pending_timer_count: int
    next_timer_due_ms: int
    timers_late_ms: int
    pending_half_count: int
    oldest_half_ms: int
    needed_commit_offset: int
    held_by: str
    stored_record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderStatus:
    """The reader's view of the store, and what it sent to consumers since its start."""

    min_commit_offset: int
    visible_offset: int
    indexed_offset: int
    writer_alive: bool
    sent_record_count: int
    sent_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSettings:
    """Settings of a service that change while it runs, until its next start."""

    log_level: str
    access_log: str
    slow_call_ms: int  # calls that take longer are logged; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerStatus:
    """The index's progress."""

    indexed_offset: int
    confirm_offset: int
    durable_offset: int
    file_count: int
    key_count: int
    problem: str
    damaged_count: int = 0
    scrub_progress: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """One staged attempt; ``decided``: the staged commit was decided before, nothing was stored."""

    attempt: str
    record_count: int
    byte_count: int
    decided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The records of a commit, with records of others between; ``already``: an earlier call stored them.

    The counts are -1 for a version that was committed long ago.
    """

    version: int
    commit_offset: int
    end_commit_offset: int
    record_count: int
    committed_ms: int
    already: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStagedCommit:
    """A staged commit under way; ``problem`` is why a decided one is not complete."""

    version: int
    decided: bool
    problem: str
    stages: tuple[Staged, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedApplication:
    """An application's highest committed version (-1: none), last commit and open staged commits.

    ``problem`` is why the writer refuses it, empty if it does not; ``app_id`` is then its directory's name.
    """

    app_id: str
    last_version: int
    last: Committed | None
    open: tuple[OpenStagedCommit, ...]
    problem: str = ""
