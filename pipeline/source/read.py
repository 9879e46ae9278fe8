"""What a task does: read pieces of a plan and yield Arrow batches of the wanted columns."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import DamagedLog, DataLost, PipelineError
from pipeline.source.damage import (
    LOST_FILE,
    LOST_STOP,
    DamagedRows,
    damaged_by,
    reasons_of,
    repeated,
)
from pipeline.source.decode import columns_of
from pipeline.source.options import ReadOptions
from pipeline.source.pieces import Piece, RemotePiece
from pipeline.source.remote import Endpoint
from pipeline.source.schemas import STORE, Columns
from storage.arrow import rows as arrow_rows
from storage.arrow.record_columns import RecordColumns, in_batches
from storage.arrow.rows import parts_of
from storage.format.consume_entry import tag_code
from storage.kernels.columns import (
    CHECK_COMMIT_OFFSET,
    COMMIT_OFFSET,
    STOP_END,
    SYS_FLAG,
    TAG_CODE,
    ByteArray,
    Rows,
)
from storage.view.log.walk import RANGE_ROWS_MAX, DamagedRange, walk_range
from storage.view.pieces import LogPiece, QueuePiece, Target
from storage.view.queues.checked_units import CheckedUnits, UnitBatch
from storage.view.queues.record_queues import QueueGrouper, is_queued
from storage.view.store_view import StoreView

BATCH_BYTES: Final = 4 << 20  # of records in a batch with bodies, one at least
RUN_BYTES: Final = 5 << 19  # of log for one batch with bodies: under the 4 MiB that Spark pools
PACKED_BATCH_BYTES: Final = 1 << 20  # of batches with compressed bodies, which grow
LOG: Final = logging.getLogger(__name__)

Bools = npt.NDArray[np.bool_]


class Reader:
    """Reads pieces of one read."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self.options = options
        self.columns = columns
        self._checks = columns.checks(options.verify) | CHECK_COMMIT_OFFSET
        self._tags = np.array(sorted(tag_code(tag) for tag in options.tags), np.int64)
        self._grouper = QueueGrouper()

    def read(self, pieces: Sequence[Piece]) -> Iterator[Any]:
        """Yield the batches of the pieces, one piece after the other."""
        for piece in pieces:
            try:
                if isinstance(piece, LogPiece):
                    yield from self._log(piece)
                elif isinstance(piece, QueuePiece):
                    yield from self._queue(piece)
                else:
                    yield from self._remote(piece)
            except FileNotFoundError as error:
                self._lost(piece, str(error.filename))

    def _lost(self, piece: Piece, path: str) -> None:
        self._lose(f"{path} was removed from store {piece.store} after the read was planned")

    def _lose(self, problem: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLost(f"{problem}; set failOnDataLoss=false to go on without it")
        LOG.warning("%s; going on without it", problem)

    def _log(self, piece: LogPiece) -> Iterator[Any]:
        start, store = piece.file_start, str(piece.store)
        if piece.is_lost:
            yield from self._damage_in(piece, DamagedRange(piece.begin, piece.end, LOST_FILE))
            return
        data = piece.data()
        run_bytes = RUN_BYTES if self.columns.bodies else None
        for step in walk_range(
            data, start, piece.begin, piece.end, checks=self._checks, run_bytes=run_bytes
        ):
            if isinstance(step, DamagedRange):
                yield from self._damage_in(piece, step)
                continue
            rows = step.rows
            if piece.targets is not None:
                rows = rows[self._of_targets(data, rows, piece.targets)]
            yield from self._batches(store, data, rows)

    def _of_targets(self, data: ByteArray, rows: Rows, targets: Sequence[Target]) -> Bools:
        ranges: dict[tuple[str, int], list[Target]] = {}
        for target in targets:
            ranges.setdefault((target.topic, target.queue_id), []).append(target)
        keys = self._grouper.group(data, rows)
        lows, highs = np.zeros((2, len(keys)), np.int64)
        for group, key in enumerate(keys):
            if key in ranges:
                lows[group] = min(target.begin for target in ranges[key])
                highs[group] = max(target.end for target in ranges[key])
        group_of = self._grouper.group_of[: len(rows)]
        offsets = rows[:, COMMIT_OFFSET]
        kept: Bools = (offsets >= lows[group_of]) & (offsets < highs[group_of]) & is_queued(rows)
        return kept

    def _queue(self, piece: QueuePiece) -> Iterator[Any]:
        store = StoreView.open(piece.store.location)
        queue = piece.open_queue(piece.topic, piece.queue_id)
        begin, end = max(piece.begin, queue.begin), max(min(piece.end, queue.end), piece.begin)
        if begin > piece.begin:
            self._lost(piece, f"the log of offsets {piece.begin} to {begin}")
        since = store.settings.deleted_topics.get(piece.topic, 0)
        checked = CheckedUnits(
            store.log, queue, piece.topic, piece.queue_id, bounds=piece.bounds, since=since
        )
        lost = piece.end - end
        tags = self._tags if self.options.tags else None
        for units in checked.read(begin, end, self._checks, tags):
            lost += units.lost
            yield from self._units(piece, units)
        if lost:
            self._lose(
                f"{lost} units of queue {piece.queue_id} of topic {piece.topic!r} in store {piece.store}"
                f" are not there, of offsets {piece.begin} to {piece.end}: their file is lost, or the"
                " topic was deleted after the read was planned"
            )

    def _units(self, piece: QueuePiece, units: UnitBatch) -> Iterator[Any]:
        for places, file, data, rows, stops in units.records:
            offsets, sizes = units.commit_offsets[places], units.sizes[places]
            if file is None:
                self._lost(piece, f"the log of offsets {offsets[0]} to {offsets[-1] + sizes[-1]}")
                continue
            good = stops == STOP_END
            yield from self._batches(str(piece.store), data, rows[good])
            bad = np.flatnonzero(~good)
            if not len(bad) or self.options.mode == "DROPMALFORMED":
                continue
            beyond = offsets[bad] >= file.start_offset + file.size
            reasons = reasons_of(np.where(beyond, LOST_STOP, stops[bad]))
            damaged = DamagedRows(
                offsets[bad], sizes[bad], reasons, piece.topic, piece.queue_id,
                units.queue_offsets[places[bad]],
            )  # fmt: skip
            yield from self._damage(str(piece.store), damaged)

    def _remote(self, piece: RemotePiece) -> Iterator[Any]:
        with Endpoint(self.options, known=True) as endpoint:
            for pulled in endpoint.pull(
                piece.topic, piece.queue_id, piece.begin, piece.end, self.options.tags
            ):
                missing = pulled.end - pulled.begin - pulled.count - len(pulled.damaged)
                if pulled.lost or (missing and not self.options.tags):
                    self._lose(
                        f"queue {piece.queue_id} of topic {piece.topic!r} behind {piece.store}:"
                        f" {missing} records at offsets {pulled.begin} to {pulled.end} are not there:"
                        f" {pulled.lost or 'they have been removed'}"
                    )
                for rows in rows_of(pulled.records, self._checks & ~CHECK_COMMIT_OFFSET):
                    yield from self._batches(piece.store, pulled.records, rows)
                damaged = DamagedRows(
                    np.array([bad.commit_offset for bad in pulled.damaged], np.int64),
                    np.array([bad.size for bad in pulled.damaged], np.int64),
                    pa.array([bad.reason for bad in pulled.damaged], pa.string()),
                    piece.topic,
                    piece.queue_id,
                    np.array([bad.queue_offset for bad in pulled.damaged], np.int64),
                )
                yield from self._damage(piece.store, damaged)

    def _batches(self, store: str, data: ByteArray, rows: Rows) -> Iterator[Any]:
        if self.options.tags and len(rows):
            rows = rows[np.isin(rows[:, TAG_CODE], self._tags)]
        if not len(rows):
            return
        limit = None
        if self.columns.bodies:
            packed = self.options.decompress and bool((rows[:, SYS_FLAG] & 1).any())
            limit = PACKED_BATCH_BYTES if packed else BATCH_BYTES
        for part in parts_of(rows, limit):
            yield from in_batches(part, partial(self._batch, store, data))

    def _batch(self, store: str, data: ByteArray, rows: Rows) -> Any:
        batch = RecordColumns(data, rows, decompress_bodies=self.options.decompress)
        kept = None
        if self.options.tags:
            kept = pc.is_in(batch.tags(), pa.array(self.options.tags, pa.string()))
        made = columns_of(batch, [name for name in self.columns.names if name != STORE])
        made[STORE] = repeated(store, len(rows))
        if batch.broken and self.options.mode != "PERMISSIVE":
            row, reason = next(iter(batch.broken.items()))
            if self.options.mode == "FAILFAST":
                raise DamagedLog(
                    f"store {store}: record at commit offset {rows[row, COMMIT_OFFSET]}: {reason};"
                    " mode PERMISSIVE gives such a body as it is stored, DROPMALFORMED leaves its record out"
                )
            whole = np.ones(len(rows), np.bool_)
            whole[list(batch.broken)] = False
            kept = pa.array(whole) if kept is None else pc.and_(kept, pa.array(whole))
        arrays = [made[name] for name in self.columns.names]
        result = pa.RecordBatch.from_arrays(arrays, schema=self.columns.schema)
        return result if kept is None else result.filter(kept)

    @staticmethod
    def _failure(store: str, commit_offset: int, reason: str) -> DamagedLog:
        return DamagedLog(
            f"store {store}: damaged at commit offset {commit_offset}: {reason};"
            " mode PERMISSIVE gives such records as nulls, DROPMALFORMED leaves them out"
        )

    def _damage_in(self, piece: LogPiece, damage: DamagedRange) -> Iterator[Any]:
        if self.options.mode != "DROPMALFORMED":  # whose reads look for no unit of it
            for found in damaged_by(piece, damage):
                yield from self._damage(str(piece.store), found)

    def _damage(self, store: str, found: DamagedRows) -> Iterator[Any]:
        if not len(found) or self.options.mode == "DROPMALFORMED":
            return
        if self.options.mode == "FAILFAST":
            raise self._failure(store, int(found.commit_offsets[0]), found.reasons[0].as_py())
        yield found.batch(store, self.columns.schema)


def rows_of(data: ByteArray, checks: int) -> Iterator[Rows]:
    """Do what ``storage.arrow.rows`` does; raises PipelineError where there is no record."""
    try:
        yield from arrow_rows.rows_of(data, checks, RANGE_ROWS_MAX)
    except ValueError as error:
        raise PipelineError(f"{error}; read again") from None
