"""Dead letters: copies of records of the log, appended to the topic of a group's that gave them up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.engine.copies import prepared_copies
from storage.errors import InvalidMessage, TopicExists
from storage.format.names import DLQ_PREFIX, group_name_problem
from storage.format.record_layout import BLANK_SIZE
from storage.kernels.columns import STOP_END, ByteArray, new_rows, stop_text
from storage.kernels.copies.dead_letters import GROWTH_MAX, copy_dead_letters
from storage.kernels.lookup import check_one
from storage.kernels.scan import scan_records
from storage.tables.topics import NewTopic

if TYPE_CHECKING:
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges

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
        self._store_host_size = len(engine.store_host)
        self._append_crc = engine.config.append_property_crc
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
        if found and topic not in self._engine.topics:
            with suppress(TopicExists):  # another call was faster
                self._create(topic)
        for records in self._runs(found):
            self._append(topic, records)
        return AppendedDeadLetters(
            record_count=len(found),
            end_commit_offset=self._engine.log.appended_offset,
            uncopied=tuple(uncopied),
        )

    def _create(self, topic: str) -> None:
        (created,) = self._topics.create([[NewTopic(name=topic, queue_count=1)]])
        if isinstance(created, Exception):
            raise created

    def _record(self, index: int, commit_offset: int) -> ByteArray | UncopiedRecord:
        """Return the bytes of the record at a commit offset, or what is wrong with it."""
        file = self._engine.committed_file(commit_offset)
        if file is None:
            return UncopiedRecord(index, _NO_COPY)
        position = commit_offset - file.start_offset
        size, stop = check_one(file.array, position, file.size, commit_offset)
        if size == 0 or stop != STOP_END:
            reason = stop_text(stop) if size else _NO_COPY
        elif size + GROWTH_MAX > self._size_max:
            reason = _TOO_LONG
        else:
            return file.array[position : position + size]
        return UncopiedRecord(index, reason)

    def _runs(
        self, records: Sequence[tuple[ByteArray, int]]
    ) -> Iterator[list[tuple[ByteArray, int]]]:
        """Yield records in runs that fit into one file each."""
        run: list[tuple[ByteArray, int]] = []
        size = 0
        for record, times in records:
            needed = record.size + GROWTH_MAX
            if run and size + needed > self._size_max:
                yield run
                run, size = [], 0
            run.append((record, times))
            size += needed
        if run:
            yield run

    def _append(self, topic: str, records: Sequence[tuple[ByteArray, int]]) -> None:
        count = len(records)
        source = np.concatenate([record for record, _ in records])
        rows = new_rows(count)
        scanned, _, stop = scan_records(source, 0, source.size, 0, 0, rows)
        assert (scanned, stop) == (count, STOP_END)
        reconsume_times = np.array([times for _, times in records], np.int64)
        copies = np.empty(source.size + count * GROWTH_MAX, np.uint8)
        topic_bytes = np.frombuffer(topic.encode(), np.uint8)
        size = copy_dead_letters(source, rows, count, topic_bytes, reconsume_times, copies)
        assert size > 0
        prepared = prepared_copies(
            copies[:size], count,
            store_host_size=self._store_host_size, append_crc=self._append_crc,
        )  # fmt: skip
        self._appender.append(prepared, decided=True)
