"""The data source as a stream: offsets and plans in the driver, batches in tasks.

Nothing but Spark's checkpoint says how far a query is. Every offset is complete when Spark writes it
down, before the batch runs: where a queue begins is in the first offset that has it, so a batch that is
run again reads what it read before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.errors import InvalidOption
from pipeline.source.options import ReadOptions, parse_options
from pipeline.source.pieces import tasks_of
from pipeline.source.source import wanted_columns
from pipeline.source.stream.file_view import FileView
from pipeline.source.stream.look import Look
from pipeline.source.stream.offsets import StoreOffset, StreamOffset
from pipeline.source.stream.progress import Backlog, Caps, StreamProgress
from pipeline.source.stream.remote_view import RemoteView
from storage.clock import SystemClock

Offset = dict[str, Any]


def make_stream_reader(given: dict[str, str], schema: StructType) -> StreamReader:
    """Check everything that can be checked and return a reader."""
    options = parse_options(given, streaming=True)
    whole_log = options.selection.is_everything and not options.endpoint
    if options.min_offsets_per_trigger and whole_log:
        raise InvalidOption(
            "minOffsetsPerTrigger",
            "counts offsets of queues, so choose them: subscribe, subscribePattern or assign",
        )
    return StreamReader(options, schema)


def open_views(options: ReadOptions) -> Sequence[FileView | RemoteView]:
    """Return a view of every store that the options name. Raises NotAStore, InvalidOption."""
    if options.endpoint:
        return [RemoteView(options)]
    for store in options.stores:
        if store.is_url:
            raise InvalidOption("store", f"{store}: a stream reads stores in directories, not URLs")
    return [FileView(store, options.selection) for store in options.stores]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages as they come."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = wanted_columns(options, schema)
        self._opened: StreamProgress | None = None
        self._target: dict[str, Look] | None = None
        self._latest: dict[str, Look] | None = None
        self._idle_at: Offset | None = None
        self._last_batch_s = -math.inf
        self._clock = SystemClock()

    @property
    def _progress(self) -> StreamProgress:
        if self._opened is None:
            self._opened = StreamProgress(self.options, open_views(self.options))
        return self._opened

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's names, here and below
        """Return the offset of nothing decided; Spark asks again until the first batch is planned."""
        return StreamOffset().encode()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one of the caps; Spark can carry one, the others are taken from the options."""
        options = self.options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run at what can be read now."""
        self._target = self._progress.look()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next batch ends, ``start`` itself if there is nothing to do."""
        progress = self._progress
        before, looks = self._latest, self._target or progress.look()
        self._latest = looks
        if (
            start == self._idle_at
            and before is not None
            and all(before[name] is look for name, look in looks.items())
        ):
            return start
        offset = StreamOffset.decode(start)
        backlog = progress.backlog(offset, looks)
        if not backlog.waiting and not offset.is_initial:
            self._idle_at = start
            return start
        caps = Caps()
        if not isinstance(limit, ReadAllAvailable):
            caps = Caps(self.options.max_offsets_per_trigger, self.options.max_bytes_per_trigger)
            if self._target is None and self._must_wait(backlog):
                if not offset.is_initial:
                    return start
                caps = Caps(records=0)  # what "latest" is must not wait
        ends = progress.ends(backlog, caps)
        self._last_batch_s = self._clock.monotonic()
        return progress.offset(backlog, ends, looks).encode()

    def _must_wait(self, backlog: Backlog) -> bool:
        least = self.options.min_offsets_per_trigger
        if least is None or sum(backlog.waiting.values()) >= least:
            return False
        waited_s = self._clock.monotonic() - self._last_batch_s
        return waited_s < self.options.max_trigger_delay_s

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return what could be read at the last look, for the progress report."""
        if self._latest is None:
            return None
        return StreamOffset(
            {
                name: StoreOffset(
                    look.store_id,
                    {queue: span.end for queue, span in look.spans.items()},
                    incarnations=look.incarnations,
                )
                for name, look in self._latest.items()
            }
        ).encode()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan what lies between two offsets; everything that a task needs is in its partition."""
        progress = self._progress
        batch = progress.batch(
            StreamOffset.decode(start), StreamOffset.decode(end), progress.look()
        )
        tasks = tasks_of(
            lambda size: chain.from_iterable(
                progress.views[name].pieces(spans, size) for name, spans in batch.items()
            ),
            self.options,
        )
        return [InputPartition(pieces) for pieces in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of one task."""
        from pipeline.source.read import Reader

        yield from Reader(self.options, self.columns).read(partition.value)

    def stop(self) -> None:
        """Let go of the stores."""
        if self._opened is not None:
            for view in self._opened.views.values():
                view.close()
            self._opened = None
