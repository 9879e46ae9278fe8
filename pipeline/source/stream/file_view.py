"""A store directory as a stream sees it. Only what changed is looked at again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.files.walk import Run, walk
from pipeline.source.options import Selection
from pipeline.source.plan import Piece, Queue, QueueKey, QueueRange, StorePlan, Tail
from pipeline.source.selecting import check_topics
from pipeline.source.stream.log_view import WHOLE_LOG, Lane, Look, Span
from pipeline.source.stream.queue_cursor import QueueCursor, QueueDirectories
from pipeline.source.stream.store_watch import StoreWatch
from storage.format.store_time import NO_TIME
from storage.kernels.columns import COMMIT_OFFSET, SIZE
from storage.view.incarnations import Incarnations
from storage.view.log.boundary import next_record
from storage.view.queue_files import QueueFiles
from storage.view.queue_settled import settled
from storage.view.store_view import StoreLocation, StoreView
from storage.view.time_search import search

UNITS_AT_ONCE = 8192


class FileView:
    """A LogView of a directory on this machine, or one that all machines share."""

    def __init__(self, store: StoreLocation | Path | str, selection: Selection) -> None:
        store = StoreView.open(store).location
        self.root = store.root
        self._selection = selection
        self._watch = StoreWatch(store)
        self._files: StoreView | None = None
        self._look: Look | None = None
        self._plan: StorePlan
        self._cursors: dict[QueueKey, QueueCursor] = {}
        self._incarnations = Incarnations()
        self._queues: dict[QueueKey, Queue] = {}
        self._directories = {
            foreign: QueueDirectories(self.root, wants)
            for foreign, wants in ((False, self._wants), (True, lambda _: True))
        }

    @property
    def name(self) -> str:
        """The directory, from the root."""
        return os.path.abspath(self.root)  # noqa: PTH100  not resolved: it is the user's name for it

    def look(self) -> Look:
        """Return what can be read now."""
        files = self._watch.poll()
        if self._look is None or files is not self._files:
            known = files.incarnations()
            while True:
                spans = self._spans(files, known or Incarnations())
                if self._plan.incarnations == known:
                    break
                known = self._plan.incarnations  # a topic was deleted meanwhile
            self._files = files
            deleted_topics = None if known is None else known.deleted_topics
            self._look = Look(self._watch.store_id, spans, deleted_topics)
        return self._look

    def close(self) -> None:
        """Unmap the checkpoint page."""
        self._watch.close()

    def _wants(self, topic: str) -> bool:
        chosen = self._selection
        if chosen.pattern is not None:
            return re.fullmatch(chosen.pattern, topic) is not None
        if chosen.assigned is not None:
            return topic in chosen.assigned
        return topic in chosen.topics

    def _wants_queue(self, key: QueueKey) -> bool:
        assigned = self._selection.assigned
        return self._wants(key[0]) and (assigned is None or key[1] in assigned[key[0]])

    def _spans(self, files: StoreView, current: Incarnations) -> dict[Lane, Span]:
        min_offset, end_offset, _ = files.bounds
        if self._selection.is_everything:
            self._plan = StorePlan(files)
            return {WHOLE_LOG: Span(min_offset, end_offset)}
        self._cursors = self._grow(files, current)
        if self._watch.is_foreign:
            queued = max(map(_end_of_units, self._cursors.values()), default=min_offset)
            files.with_bounds(
                files.bounds._replace(queued_offset=min(end_offset, max(queued, min_offset)))
            )
        self._plan = StorePlan(files)
        tails = self._plan.tails
        keys = {key for key in (*self._cursors, *tails) if self._wants_queue(key)}
        no_files = QueueFiles(files.filesystem, (), 0, 0)
        self._queues = {
            key: Queue(
                *key,
                self._cursors[key].files if key in self._cursors else no_files,
                tails.get(key, Tail()),
            )
            for key in sorted(keys)
        }
        return {key: Span(queue.begin, queue.end) for key, queue in self._queues.items()}

    def _grow(self, files: StoreView, current: Incarnations) -> dict[QueueKey, QueueCursor]:
        min_offset, end_offset, queued_offset = files.bounds
        before = self._files.bounds if self._files is not None else None
        is_same_log = (
            before is not None
            and before.min_offset == min_offset
            and before.end_offset <= end_offset
        )
        limit = min(end_offset, queued_offset)
        found = {}
        for key, directory in self._directories[self._watch.is_foreign].find().items():
            if key[0] == current.deleting_topic:
                continue
            is_same = is_same_log and current.of(key[0]) == self._incarnations.of(key[0])
            known = self._cursors.get(key) if is_same else None
            try:
                cursor = (
                    known.grown(min_offset, limit)
                    if known is not None
                    else QueueCursor.open(files, directory, min_offset, limit)
                )
            except FileNotFoundError:
                cursor = QueueCursor.open(files, directory, min_offset, limit)
            if cursor is not known:
                whole = settled(files.log, key[0], cursor.files, limit)
                cursor = replace(cursor, files=whole)
            found[key] = cursor
        self._incarnations = current
        return found

    def check_selection(self) -> None:
        """Raise InvalidOption for a topic that neither has a queue nor is in the topic table.

        A pattern may wait for topics to come; an assigned queue, for its first message.
        """
        known = {topic for topic, _ in self._queues} | StoreView(self.root).topic_names()
        check_topics(self._selection, known, str(self.root))

    def offset_at_time(self, lane: Lane, timestamp_ms: int) -> int | None:
        """Return the first offset stored at or after a time."""
        if lane != WHOLE_LOG:
            return self._plan.offset_at_time(self._queues[lane], timestamp_ms)
        begin, end, _ = self._plan.store.bounds
        found = self._record_at(search(begin, end, timestamp_ms, self._time_from))
        return found if found < end else None

    def _time_from(self, commit_offset: int, end: int) -> tuple[int, int]:
        """Return when the first record in ``[commit_offset, end)`` of the log was stored, and where it is."""
        files = self._plan.store
        while (found := self._record_at(commit_offset)) < end:
            time_ms = files.log.record_time_ms(found)
            if time_ms != NO_TIME:
                return time_ms, found
            commit_offset = found + 1
        return NO_TIME, end

    def _record_at(self, commit_offset: int) -> int:
        """Return where the first record at or behind a commit offset begins; the end without one."""
        files = self._plan.store
        return next_record(files.log, commit_offset, files.bounds.end_offset)

    def stored_at(self, lane: Lane, offset: int) -> int:
        """Return when the record at an offset was stored, 0 if that cannot be read."""
        if lane != WHOLE_LOG:
            return self._plan.timestamp(self._queues[lane], offset)
        return max(self._time_from(offset, self._plan.bounds.end_offset)[0], 0)

    def bytes_of(self, lane: Lane, span: Span) -> int:
        """Estimate the bytes of a span: exact for the log, by samples for a queue."""
        if lane == WHOLE_LOG:
            return span.end - span.begin
        queue = self._queues[lane]
        units_end = max(span.begin, min(span.end, queue.files.end))
        in_units = queue.files.mean_size(span.begin, units_end) * (units_end - span.begin)
        return int(in_units) + sum(self._tail_sizes(queue, units_end, span.end))

    @staticmethod
    def _tail_sizes(queue: Queue, begin: int, end: int) -> list[int]:
        tail = queue.tail
        low, high = np.searchsorted(tail.queue_offsets, (begin, end)).tolist()
        return tail.sizes[low:high]

    def after_records(self, lane: Lane, span: Span, count: int) -> int:
        """Return the offset behind the first records; the log is walked for it, headers only."""
        if lane != WHOLE_LOG:
            return min(span.end, span.begin + count)
        if count <= 0:
            return span.begin
        log = self._plan.store.log
        for file in log.entries:
            begin, end = max(file.start_offset, span.begin), min(file.end_offset, span.end)
            if begin >= end:
                continue
            for step in walk(log.map(file), file.start_offset, begin, end, checks=0):
                if not isinstance(step, Run):
                    count -= 1
                    if not count:
                        return step.end
                elif count <= len(step.rows):
                    last = step.rows[count - 1]
                    return int(last[COMMIT_OFFSET] + last[SIZE])
                else:
                    count -= len(step.rows)
        return span.end

    def after_bytes(self, lane: Lane, span: Span, size: int) -> tuple[int, int]:
        """Return the offset behind the first records that fit; of the log, to the next record's edge."""
        if lane == WHOLE_LOG:
            end = span.end
            if span.begin + size < span.end:
                end = self._record_at(span.begin + size)
            return end, end - span.begin
        queue = self._queues[lane]
        at, taken = span.begin, 0
        units_end = min(span.end, queue.files.end)
        while at < units_end:
            units = queue.files.units(at, min(UNITS_AT_ONCE, units_end - at))
            if not len(units):
                break
            sums = taken + np.cumsum(units["size"].astype(np.int64))
            fit = int(np.searchsorted(sums, size, side="right"))
            if fit < len(units):
                return at + fit, int(sums[fit - 1]) if fit else taken
            at, taken = at + len(units), int(sums[-1])
        for record_size in self._tail_sizes(queue, at, span.end):
            if taken + record_size > size:
                return at, taken
            at, taken = at + 1, taken + record_size
        return span.end, taken

    def pieces(self, spans: Mapping[Lane, Span], piece_bytes: int) -> Iterator[Piece]:
        """Cut spans into pieces, through the log or the units, whichever is less to read."""
        ranges = []
        for lane, (begin, end) in spans.items():
            if lane == WHOLE_LOG:
                yield from self._plan.log_pieces(begin, end, piece_bytes, None)
            else:
                ranges.append(QueueRange(self._queues[lane], begin, end))
        if ranges:
            yield from self._plan.range_pieces(ranges, piece_bytes)


def _end_of_units(cursor: QueueCursor) -> int:
    files = cursor.files
    if files.begin >= files.end:
        return 0
    offset, size, _ = files.unit(files.end - 1)
    return offset + size
