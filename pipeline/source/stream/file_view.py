"""A store directory as a stream sees it: planned anew, as a batch is, when anything of it changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from pipeline.source.options import Selection, open_store
from pipeline.source.pieces import Piece
from pipeline.source.selection import check_topics, wants
from pipeline.source.stream.look import WHOLE_LOG, Look, Span
from storage.format.store_time import NO_TIME
from storage.kernels.columns import COMMIT_OFFSET, SIZE
from storage.view.log.boundary import next_record
from storage.view.log.walk import DamagedRange, walk_range
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.time_search import search
from storage.view.store_plan import PlannedRange, Queue, StorePlan
from storage.view.store_view import StoreLocation, StoreView
from storage.view.store_watch import StoreWatch


class FileView:
    """A directory on this machine, or one that all machines share, in the driver; of one thread at a time.

    Every offset that a method takes lies within the last look. Methods raise NotAStore when the store is gone.
    """

    def __init__(self, store: StoreLocation | Path | str, selection: Selection) -> None:
        view = open_store(store)
        self.root = view.paths.root
        self._selection = selection
        self._watch = StoreWatch(view.location)
        self._files: StoreView | None = None
        self._look: Look | None = None
        self._plan: StorePlan
        self._queues: dict[QueueKey, Queue] = {}

    @property
    def name(self) -> str:
        """The directory, from the root."""
        return os.path.abspath(self.root)  # noqa: PTH100  not resolved: it is the user's name for it

    def look(self) -> Look:
        """Return what can be read now: the same object, for next to nothing, while nothing changed."""
        files = self._watch.poll()
        if self._look is None or files is not self._files:
            while True:
                spans = self._spans(files)
                known = files.incarnations()
                if self._plan.incarnations == known:
                    break  # no topic was deleted meanwhile
            self._files = files
            deleted_topics = None if known is None else known.deleted_topics
            self._look = Look(self._watch.store_id, spans, deleted_topics)
        return self._look

    def close(self) -> None:
        """Do nothing: it holds no file open."""

    def _wants(self, topic: str) -> bool:
        """Return whether queues of a topic may be chosen; records that are not queued yet are of any topic."""
        assigned = self._selection.assigned
        return topic in assigned if assigned is not None else wants(self._selection, topic, 0)

    def _spans(self, files: StoreView) -> dict[QueueKey, Span]:
        min_offset, end_offset, _ = files.bounds
        if self._selection.is_everything:
            self._plan = StorePlan(files)
            return {WHOLE_LOG: Span(min_offset, end_offset)}
        if self._watch.is_foreign:
            queued_offset = max(sum(files.newest_unit(end_offset)), min_offset)
            files.with_bounds(files.bounds._replace(queued_offset=min(end_offset, queued_offset)))
        self._plan = StorePlan(files, self._wants)
        found = self._plan.queues
        self._queues = {key: found[key] for key in sorted(found) if wants(self._selection, *key)}
        return {key: Span(queue.begin, queue.end) for key, queue in self._queues.items()}

    def check_selection(self) -> None:
        """Raise InvalidOption for a topic that neither has a queue nor is in the topic table.

        A pattern may wait for topics to come; an assigned queue, for its first message.
        """
        known = {topic for topic, _ in self._queues} | StoreView(self.root).topic_names()
        check_topics(self._selection, known, str(self.root))

    def offset_at_time(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """Return the first offset stored at or after a time."""
        if key != WHOLE_LOG:
            return self._plan.offset_at_time(self._queues[key], timestamp_ms)
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
        """Return where the first record at or after a commit offset begins; the end without one."""
        files = self._plan.store
        return next_record(files.log, commit_offset, files.bounds.end_offset)

    def stored_at(self, key: QueueKey, offset: int) -> int:
        """Return when the record at an offset was stored, 0 if that cannot be read."""
        if key != WHOLE_LOG:
            return self._plan.timestamp(self._queues[key], offset)
        return max(self._time_from(offset, self._plan.bounds.end_offset)[0], 0)

    def bytes_of(self, key: QueueKey, span: Span) -> int:
        """Estimate the bytes of a span: exact for the log, by samples for a queue."""
        if key == WHOLE_LOG:
            return span.end - span.begin
        return self._queues[key].bytes_of(*span)

    def after_records(self, key: QueueKey, span: Span, count: int) -> int:
        """Return the offset after the first records; the log is walked for it, headers only."""
        if key != WHOLE_LOG:
            return min(span.end, span.begin + count)
        if count <= 0:
            return span.begin
        log = self._plan.store.log
        for file in log.entries:
            begin, end = max(file.start_offset, span.begin), min(file.end_offset, span.end)
            if begin >= end:
                continue
            for step in walk_range(log.map(file), file.start_offset, begin, end, checks=0):
                if isinstance(step, DamagedRange):
                    count -= 1
                    if not count:
                        return step.end_offset
                elif count <= len(step.rows):
                    last = step.rows[count - 1]
                    return int(last[COMMIT_OFFSET] + last[SIZE])
                else:
                    count -= len(step.rows)
        return span.end

    def after_bytes(self, key: QueueKey, span: Span, size: int) -> tuple[int, int]:
        """Return the offset after the first records that fit into ``size`` bytes, and what they take.

        May be none. In the log the end is the next record's edge: one that begins within the size fits.
        """
        if key == WHOLE_LOG:
            end = span.end
            if span.begin + size < span.end:
                end = self._record_at(span.begin + size)
            return end, end - span.begin
        at, taken = span.begin, 0
        for sizes in self._queues[key].sizes(*span):
            sums = taken + np.cumsum(sizes)
            fit = int(np.searchsorted(sums, size, side="right"))
            if fit < len(sizes):
                return at + fit, int(sums[fit - 1]) if fit else taken
            at, taken = at + len(sizes), int(sums[-1])
        return span.end, taken

    def pieces(self, spans: Mapping[QueueKey, Span], piece_bytes: int) -> Iterator[Piece]:
        """Cut spans into pieces, through the log or the units, whichever is less to read."""
        ranges = []
        for key, (begin, end) in spans.items():
            if key == WHOLE_LOG:
                yield from self._plan.log_pieces(begin, end, piece_bytes, None, with_lost=True)
            else:
                ranges.append(PlannedRange(self._queues[key], begin, end))
        if ranges:
            yield from self._plan.range_pieces(ranges, piece_bytes)
