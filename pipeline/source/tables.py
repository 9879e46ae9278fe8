"""The tables beside messages: units, index entries, the checkpoint, queues and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pipeline.source.options import ReadOptions, open_store
from pipeline.source.remote import Endpoint
from pipeline.source.schemas import STORE, TABLES
from pipeline.source.selection import HasRange
from storage.format.consume_entry import UNIT_SIZE
from storage.view.index.entries import IndexEntries
from storage.view.queues.units import as_units
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreLocation, StoreView

if TYPE_CHECKING:
    from pipeline.source.schemas import Columns

CHUNK: Final = 100_000
Table = dict[str, Any]


def parts_of(store: StoreLocation, table: str) -> list[Any]:
    """Return what each task of a table reads; checks that there is a store."""
    files = open_store(store)
    if table == "consumequeue":
        return [(topic, queue_id) for topic, queue_id, _ in files.queue_directories()]
    if table == "index":
        return files.index_files()
    return [None]


def read_part(store: StoreLocation, table: str, part: Any, columns: Columns) -> Iterator[Any]:
    """Yield the batches of one part with the wanted columns."""
    for made in READERS[table](StoreView.open(store), part):
        yield batch_of(made, str(store), columns)


def batch_of(made: Table, store: str, columns: Columns) -> Any:
    """Return the wanted columns of a table as a batch; ``store`` is the value of that column."""
    count = len(next(iter(made.values())))
    made = {**made, STORE: pa.repeat(pa.scalar(store, pa.string()), count)}
    arrays = [
        made[field.name]
        if isinstance(made[field.name], pa.Array)
        else pa.array(made[field.name], field.type)
        for field in columns.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.schema)


def _consume_queue(store: StoreView, part: Any) -> Iterator[Table]:
    topic, queue_id = part
    for file in store.queue(topic, queue_id).files:
        units = as_units(store.map(file.path)[: file.size])
        written = np.flatnonzero(units["size"] != 0)
        for at in range(0, len(written), CHUNK):
            chosen = written[at : at + CHUNK]
            mine = units[chosen]
            yield {
                "topic": pa.repeat(pa.scalar(topic, pa.string()), len(mine)),
                "queueId": np.full(len(mine), queue_id, np.int32),
                "queueOffset": chosen + file.start_offset // UNIT_SIZE,
                "physicalOffset": mine["offset"].astype(np.int64),
                "size": mine["size"].astype(np.int32),
                "tagsCode": mine["tag"].astype(np.int64),
            }


def _index(_store: StoreView, part: IndexEntries) -> Iterator[Table]:
    header = part.header()
    entries = part.entries(part.counted(header))
    for at in range(0, len(entries), CHUNK):
        mine = entries[at : at + CHUNK]
        yield {
            "file": pa.repeat(pa.scalar(part.name, pa.string()), len(mine)),
            "entry": np.arange(at + 1, at + 1 + len(mine), dtype=np.int32),
            "keyHash": mine["hash"].astype(np.int32),
            "physicalOffset": mine["offset"].astype(np.int64),
            "timeDelta": mine["delta"].astype(np.int32),
            "previousEntry": mine["previous"].astype(np.int32),
            "beginTimestamp": pa.array(
                np.full(len(mine), header.begin_timestamp_ms * 1000, np.int64),
                pa.timestamp("us", tz="UTC"),
            ),
        }


def _checkpoint(store: StoreView, _part: Any) -> Iterator[Table]:
    fields = store.checkpoint.broker_fields
    named = {
        "physicMsgTimestamp": (fields.physic_timestamp_ms, True),
        "logicsMsgTimestamp": (fields.logics_timestamp_ms, True),
        "indexMsgTimestamp": (fields.index_timestamp_ms, True),
        "masterFlushedOffset": (fields.master_flushed_offset, False),
        "confirmPhyOffset": (fields.confirm_offset, False),
        "minOffset": (store.bounds.min_offset, False),
        "readableOffset": (store.bounds.end_offset, False),
        "queuedOffset": (store.bounds.queued_offset, False),
    }
    times = [value * 1000 if is_time and value else None for value, is_time in named.values()]
    yield {
        "field": list(named),
        "value": [value for value, _ in named.values()],
        "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
    }


def _queues(store: StoreView, _part: Any) -> Iterator[Table]:
    rows = []
    for _, queue in sorted(StorePlan(store).queues.items()):
        places: tuple[int | None, int | None] = None, None
        if queue.end > queue.begin:
            places = queue.place(queue.begin)[0], sum(queue.place(queue.end - 1))
        rows.append(_queue_row(queue, *places))
    yield _table("queues", rows)


def remote_queues(options: ReadOptions) -> Table:
    """Return the table ``queues`` of a reader service."""
    with Endpoint(options) as endpoint:
        queues = sorted(endpoint.list_queues().queues.values())
    return _table(
        "queues", [_queue_row(queue, queue.commit_begin, queue.commit_end) for queue in queues]
    )


def _queue_row(
    queue: HasRange, commit_begin: int | None, commit_end: int | None
) -> tuple[Any, ...]:
    count = queue.end - queue.begin
    return queue.topic, queue.queue_id, queue.begin, queue.end, count, commit_begin, commit_end


def _files(store: StoreView, _part: Any) -> Iterator[Table]:
    where = store.filesystem.location
    found: list[tuple[Any, ...]] = [
        ("commitlog", None, None, file.start_offset, file.size, where(file.path))
        for file in store.files(store.paths.commit_log)
        if file.size
    ]
    for topic, queue_id, directory in store.queue_directories():
        found += [
            ("consumequeue", topic, queue_id, file.start_offset, file.size, where(file.path))
            for file in store.files(directory)
        ]
    for file in store.index_files():
        found.append(("index", None, None, int(file.name), file.size, where(file.path)))
    yield _table("files", found)


def _table(name: str, rows: Sequence[tuple[Any, ...]]) -> Table:
    return {column: [row[at] for row in rows] for at, column in enumerate(TABLES[name])}


READERS: Final = {
    "consumequeue": _consume_queue,
    "index": _index,
    "checkpoint": _checkpoint,
    "queues": _queues,
    "files": _files,
}
