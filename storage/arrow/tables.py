"""Records as Arrow batches with chosen columns: of bytes that came from a reader, and of a store.

The columns and their types are a promise (docs/client.md). A body that cannot be unpacked is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.arrow.record_columns import TIMESTAMP, RecordColumns, in_batches
from storage.arrow.rows import parts_of, rows_of
from storage.errors import DamagedRecord, InvalidMessage, TopicNotFound
from storage.format.consume_entry import tag_code
from storage.kernels.columns import (
    CHECK_ALL,
    STOP_END,
    TAG_CODE,
    ByteArray,
    Rows,
    stop_text,
)
from storage.view.queues.checked_units import UnitBatch
from storage.view.queues.queue_files import UNITS_MAX
from storage.view.store_plan import Queue, StorePlan
from storage.view.store_view import StoreLocation as StoreLocation
from storage.view.store_view import StoreView

TYPES: Final = {
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "commit_offset": pa.int64(),
    "born_timestamp": TIMESTAMP,
    "store_timestamp": TIMESTAMP,
    "tag": pa.string(),
    "keys": pa.list_(pa.string()),
    "body": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "unique_key": pa.string(),
    "message_id": pa.string(),
    "size": pa.int32(),
    "born_host": pa.string(),
    "store_host": pa.string(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "body_crc": pa.int32(),
    "reconsume_times": pa.int32(),
    "prepared_offset": pa.int64(),
}
USUAL: Final = tuple(TYPES)[:10]  # which a table has where none are named
BATCH_BYTES: Final = 64 << 20  # of records in a batch with bodies, one at least
_ROWS_MAX: Final = 1 << 16  # of a batch


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of the named columns, or of the usual ones. Raises InvalidMessage for another name."""
    names = USUAL if columns is None else tuple(columns)
    for name in names:
        if name not in TYPES:
            raise InvalidMessage("columns", f"there is no {name!r}; there are {', '.join(TYPES)}")
    return pa.schema([(name, TYPES[name]) for name in names])


def batches_of(raw: bytes | memoryview, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches of whole records that lie one after the other. Raises ValueError for what is none."""
    records = np.frombuffer(raw, np.uint8)
    for rows in rows_of(records, 0, _ROWS_MAX):
        yield from _batches(records, rows, schema)


def batches_of_queue(
    plan: StorePlan, queue: Queue, begin: int, end: int, schema: pa.Schema, tags: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield batches of queue offsets ``[begin, end)`` of a store, of all tags or some.

    Raises DamagedRecord for the first record that is damaged or lost.
    """
    codes = np.array(sorted(map(tag_code, tags)), np.int64) if tags else None
    for units in _units(plan, queue, begin, end, codes):
        for places, file, data, rows, stops in units.records:
            bad = places[:1] if file is None else places[stops != STOP_END]
            if len(bad):
                at = int(bad[0])
                problem = "its log file is lost"
                if file is not None:
                    problem = stop_text(int(stops[places == at][0]))
                raise DamagedRecord(int(units.commit_offsets[at]), int(units.sizes[at]), problem)
            found = rows
            if codes is not None:
                found = found[np.isin(found[:, TAG_CODE], codes)]
                said = RecordColumns(data, found, decompress_bodies=False).tags()
                found = found[pc.is_in(said, pa.array(tags, pa.string())).to_numpy(False)]
            yield from _batches(data, found, schema)


def _units(
    plan: StorePlan, queue: Queue, begin: int, end: int, codes: npt.NDArray[np.int64] | None
) -> Iterator[UnitBatch]:
    """Yield the units of a queue, and of records that are in no queue yet."""
    queued_end = max(begin, min(end, queue.files.end))
    checked = plan.checked_units(queue)
    for units in checked.read(begin, queued_end, CHECK_ALL, codes):
        if units.lost:
            raise DamagedRecord(-1, 0, f"{units.lost} records of queue {queue.queue_id} are lost")
        yield units
    offsets, places, sizes = queue.unqueued
    kept = (offsets >= queued_end) & (offsets < end)
    offsets, places, sizes = offsets[kept], places[kept], sizes[kept]
    for at in range(0, len(places), UNITS_MAX):
        mine = slice(at, at + UNITS_MAX)
        yield checked.unqueued(offsets[mine], places[mine], sizes[mine], CHECK_ALL)


def _batches(data: ByteArray, rows: Rows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rows, with as many bytes of bodies as one may have."""
    if not len(rows):
        return
    for part in parts_of(rows, BATCH_BYTES if "body" in schema.names else None):
        yield from in_batches(part, partial(_batch, data, schema))


def _batch(data: ByteArray, schema: pa.Schema, rows: Rows) -> pa.RecordBatch:
    columns = RecordColumns(data, rows, decompress_bodies=True)
    arrays = [columns.column(name) for name in schema.names]
    if columns.broken:
        whole = np.ones(len(rows), np.bool_)
        whole[list(columns.broken)] = False
        at = schema.names.index("body")
        arrays[at] = pc.if_else(pa.array(whole), arrays[at], None)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches_of_store(
    store: StoreLocation | Path | str, topic: str, schema: pa.Schema, *, queues: Sequence[int] | None,
    start: Callable[[StorePlan, Queue], int], end: Callable[[StorePlan, Queue], int],
    tags: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Yield batches of a topic of a store, at a path or URL, queue by queue, from ``start`` to ``end`` of each.

    A service may write meanwhile: what is read is the store as it was at the call. Raises NotAStore,
    UnsupportedFormat, TopicNotFound, DamagedRecord.
    """
    plan = StorePlan(StoreView.open(store))
    if topic not in plan.topics:
        raise TopicNotFound(topic)
    for _, queue in sorted(plan.queues.items()):
        if queue.topic == topic and (queues is None or queue.queue_id in queues):
            begin, until = max(queue.begin, start(plan, queue)), min(queue.end, end(plan, queue))
            yield from batches_of_queue(plan, queue, begin, until, schema, tags)
