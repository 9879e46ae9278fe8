"""Dead letters: copies of records of the log, appended to the topic of a group's that gave them up.

A copy has the fields that a broker gives it. It keeps body, flag, born time, born host and all properties,
but for these::

    RETRY_TOPIC          the topic that the record stands in, unless the record has the property
    ORIGIN_MESSAGE_ID    the record's offset message id, unless the record has the property
    DELAY                0
    WAIT                 false

Its queue is 0, its reconsumeTimes are given. The light queues that the record was in do not get the copy.
A property that would make the block too long is left out: the message is worth more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.engine.copies import (
    copied_to,
    in_runs,
    own_targets,
    prepared_copies,
    property_block,
    scanned,
    store_host_of,
)
from storage.errors import InvalidMessage
from storage.format.message_id import encode_message_id
from storage.format.names import DLQ_PREFIX, group_name_problem
from storage.format.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    decode_properties,
    encode_properties,
)
from storage.format.record_layout import BLANK_SIZE
from storage.kernels.columns import (
    COMMIT_OFFSET,
    STOP_END,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    ByteArray,
    Rows,
    stop_text,
)
from storage.kernels.copies import TARGET_TIMES, dropped_names

if TYPE_CHECKING:
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges

GROWTH_MAX: Final = 1_024  # bytes that a copy may be longer than its record
_DROPPED: Final = dropped_names((DELAY, WAIT, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET))
_NO_COPY: Final = "there is no record of that commit offset any more"
_TOO_LONG: Final = "a copy of it would be too long for a file of the log"


class UncopiedRecord(NamedTuple):
    """A record that is gone or damaged, by its index among those given, and why it cannot be copied."""

    record_index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedDeadLetters:
    """What was appended, and of which records there is no copy."""

    record_count: int
    end_commit_offset: int
    uncopied: tuple[UncopiedRecord, ...]


class DeadLetterAppender:
    """Appends dead letters to the log of an engine; safe to call from several threads."""

    def __init__(self, engine: Engine, appender: Appender, topics: TopicChanges) -> None:
        self._engine = engine
        self._appender = appender
        self._topics = topics
        self._size_max = engine.log.files.file_size - BLANK_SIZE

    def append(
        self, group: str, commit_offsets: Sequence[int], reconsume_times: Sequence[int]
    ) -> AppendedDeadLetters:
        """Copy the records at ``commit_offsets`` to the group's dead letter topic.

        Does not wait for durability. Raises InvalidMessage, StoreBusy, StoreFull, StoreFailed, after which a
        part may have been appended.
        """
        problem = group_name_problem(group)
        if problem:
            raise InvalidMessage("group", problem)
        if len(commit_offsets) != len(reconsume_times):
            raise InvalidMessage("reconsume_times", "must be as many as commit_offsets")
        self._appender.check_open()
        topic = f"{DLQ_PREFIX}{group}"
        uncopied: list[UncopiedRecord] = []
        found: list[tuple[ByteArray, int]] = []
        for index, (commit_offset, times) in enumerate(
            zip(commit_offsets, reconsume_times, strict=True)
        ):
            record = self._record(index, commit_offset)
            if isinstance(record, UncopiedRecord):
                uncopied.append(record)
            else:
                found.append((record, times))
        if found:
            self._topics.ensure({topic: 1})
        for records in in_runs(found, lambda each: each[0].size + GROWTH_MAX, self._size_max):
            self._append(topic, records)
        return AppendedDeadLetters(
            record_count=len(found),
            end_commit_offset=self._engine.log.appended_offset,
            uncopied=tuple(uncopied),
        )

    def _record(self, index: int, commit_offset: int) -> ByteArray | UncopiedRecord:
        """Return the bytes of the record at a commit offset, or what is wrong with it."""
        record, stop = self._engine.record_at(commit_offset)
        if record is None:
            return UncopiedRecord(index, _NO_COPY)
        if stop != STOP_END:
            return UncopiedRecord(index, stop_text(stop))
        is_long = record.size + GROWTH_MAX > self._size_max
        return UncopiedRecord(index, _TOO_LONG) if is_long else record

    def _append(self, topic: str, records: Sequence[tuple[ByteArray, int]]) -> None:
        copies = dead_letters_of(
            [record for record, _ in records], topic, [times for _, times in records]
        )
        prepared = prepared_copies(self._engine, copies, len(records))
        self._appender.append(prepared, decided=True)


def dead_letters_of(
    records: Sequence[ByteArray], topic: str, reconsume_times: Sequence[int]
) -> ByteArray:
    """Return copies of intact records for a dead letter topic, one after the other, to be placed."""
    source, rows = scanned(records)
    targets = own_targets(source, rows)
    targets[:, TARGET_TIMES] = reconsume_times
    pairs = [_pairs_of(source, row) for row in rows]
    return copied_to([topic.encode()] * len(rows), pairs, source, rows, targets, _DROPPED)


def _pairs_of(source: ByteArray, row: Rows) -> bytes:
    begin = int(row[TOPIC_POSITION])
    topic = source[begin : begin + int(row[TOPIC_LENGTH])].tobytes().decode()
    message_id = encode_message_id(store_host_of(source, row), int(row[COMMIT_OFFSET]))
    held = decode_properties(property_block(source, row))
    pairs = {DELAY: "0", WAIT: "false", RETRY_TOPIC: topic, ORIGIN_MESSAGE_ID: message_id}
    for name in (RETRY_TOPIC, ORIGIN_MESSAGE_ID):
        if name in held:
            del pairs[name]
    return encode_properties(pairs)
