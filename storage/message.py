"""Messages and answers as values; no bytes of the format are known here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:  # for a client, which would take a tenth of a second longer to start
    import numpy as np
    import numpy.typing as npt

NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class Message(NamedTuple):
    """A message to be stored; ``body`` is stored as it is given.

    ``sys_flag`` says how the body is compressed, as that of a stored record does; 0 if it is not.
    One of ``delay_level`` (1 to 18), ``deliver_at_ms`` (Unix time) and ``delay_ms`` (from now on) has it delivered later.
    """

    topic: str
    body: bytes
    keys: tuple[str, ...] = ()
    tag: str = ""
    properties: Mapping[str, str] = NO_PROPERTIES
    queue_id: int | None = None
    unique_key: str = ""
    flag: int = 0
    born_timestamp_ms: int = 0
    delay_level: int = 0
    deliver_at_ms: int = 0
    delay_ms: int = 0
    sys_flag: int = 0

    @property
    def is_delayed(self) -> bool:
        """Whether it asks for a delay."""
        return bool(self.delay_level or self.deliver_at_ms or self.delay_ms)


class ProducerSequence(NamedTuple):
    """Whose request it is, and which: the same each time that it is sent. Numbers from 1 on.

    ``age_ms`` is how long ago it was first sent; 0: it is sent for the first time.
    """

    producer_id: int
    sequence: int
    age_ms: int = 0


class PutResult(NamedTuple):
    """Where one message was stored, and whether an earlier call with the same sequence had stored it.

    A message that is delayed has ``queue_offset`` -1: it gets one when it is delivered. ``recall_ms`` says when to
    a recall, 0 of a message that cannot be recalled.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_offset: int
    message_id: str
    unique_key: str
    store_timestamp_ms: int
    recall_ms: int = 0
    repeated: bool = False


class QueueRange(NamedTuple):
    """Queue offsets which the records of one queue in a batch were given."""

    topic: str
    queue_id: int
    first_queue_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here


class BatchResult(NamedTuple):
    """Where a record batch was stored: ``[commit_offset, end_commit_offset)``.

    ``repeated`` says that an earlier call with the same sequence had stored it. Where that one was cut
    short by a stop, other records may lie between, and a queue have two ranges.
    """

    commit_offset: int
    end_commit_offset: int
    record_count: int
    store_timestamp_ms: int
    ranges: tuple[QueueRange, ...]
    repeated: bool = False


class PullStatus(Enum):
    """Outcome of a pull, under a broker's names."""

    FOUND = "at least one record (or a damaged one) was met"
    NO_MATCHED_MESSAGE = "every examined unit was filtered out"
    MESSAGE_WAS_REMOVING = "the examined records are gone from the commit log"
    OFFSET_FOUND_NULL = "the queue's file at this offset is gone"
    OFFSET_OVERFLOW_BADLY = "beyond the end"
    OFFSET_OVERFLOW_ONE = "at the end: nothing new yet"
    OFFSET_TOO_SMALL = "before the first record kept"
    NO_MATCHED_LOGIC_QUEUE = "no such queue"
    NO_MESSAGE_IN_QUEUE = "nothing was ever stored in the queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A record whose bytes are not what was stored."""

    queue_offset: int
    commit_offset: int
    size: int
    reason: str
    queue_id: int = -1
    """-1 where it was not found by a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """Answer to a pull.

    ``slices`` are read-only views of the commit log, adjacent records joined; they stay valid as
    long as they are referenced. Together they hold ``record_count`` whole records, in order.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    record_count: int = 0
    slices: tuple[memoryview, ...] = ()
    damaged: tuple[Damage, ...] = ()
    queue_offset_parts: tuple[npt.NDArray[np.int64], ...] = field(default=(), compare=False)

    @property
    def queue_offsets(self) -> tuple[int, ...]:
        """Queue offset of each record, in order."""
        return tuple(int(offset) for part in self.queue_offset_parts for offset in part)


@dataclass(frozen=True, slots=True, kw_only=True)
class UncoveredRange:
    """Records that begin in ``[begin_commit_offset, end_commit_offset)`` may be missing in an answer.

    ``file_name`` is the index file that is missing, empty where a part of the log is; ``reason`` is what is wrong with it.
    """

    begin_commit_offset: int
    end_commit_offset: int
    file_name: str
    reason: str

    def __str__(self) -> str:
        """Say it in a sentence."""
        subject = f"index file {self.file_name} " if self.file_name else ""
        return (
            f"keys between commit offsets {self.begin_commit_offset} and {self.end_commit_offset}"
            f" are not covered: {subject}{self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQueryResult:
    """Answer to a query by key, by ascending commit offset within the page.

    Records may be missing from the ranges ``uncovered`` until the indexer has rebuilt the files.
    """

    record_count: int
    slices: tuple[memoryview, ...]
    damaged: tuple[Damage, ...]
    next_page_token: str
    indexed_offset: int
    uncovered: tuple[UncoveredRange, ...] = ()
