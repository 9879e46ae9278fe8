"""Chosen records as Parquet files, one for each task, with the columns of the table ``messages``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.files.walk import Hole
from pipeline.jobs.new_store.slabs import Rows, Served, Slab, deal, take
from pipeline.jobs.work import run_tasks
from pipeline.source.decode import TIMESTAMP, Batch, body_first
from pipeline.source.read import parts_of
from pipeline.source.schemas import CORRUPT, MESSAGE_COLUMNS
from storage.kernels.columns import SIZE, ByteArray

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP_BYTES: Final = 64 << 20  # of records, that become one row group
TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "timestamp": TIMESTAMP,
}
SCHEMA: Final = pa.schema(
    [(name, TYPES[kind]) for name, kind in {**MESSAGE_COLUMNS, CORRUPT: "string"}.items()]
)


def write_parquet(
    spark: SparkSession, slabs: Sequence[Slab], choose: Served, directory: Path, *, counter: Any
) -> tuple[int, list[Hole]]:
    """Write what is chosen; return how many records there are and the damage that was left out."""
    tasks = list(enumerate(deal(spark, slabs, lambda slab: slab.cost)))
    write = partial(_write_file, choose=choose, directory=str(directory), counter=counter)
    results = run_tasks(spark, tasks, write)
    return sum(count for count, _ in results), [hole for _, holes in results for hole in holes]


def _write_file(
    item: tuple[int, Sequence[Slab]], *, choose: Served, directory: str, counter: Any
) -> tuple[int, list[Hole]]:
    number, slabs = item
    path = Path(directory, f"part-{number:05d}.parquet")
    partial_path = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    written = _Groups(partial_path)
    holes: list[Hole] = []
    for slab in slabs:
        chosen = take(slab, choose)
        holes += [hole for _, hole in chosen.holes]
        for part in chosen.outputs.get(0, []):
            written.add(part.data, part.rows)
        counter.add(slab.cost)
    if written.close():
        partial_path.replace(path)
    return written.rows, holes


class _Groups:
    """Row groups of one file, which is made with the first."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._path = path
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._size = 0

    def add(self, data: ByteArray, rows: Rows) -> None:
        """Add records; they must lie in ``data`` until this returns."""
        for part in parts_of(rows, GROUP_BYTES):
            batch = Batch(data, part, decompress_bodies=True)
            made = {name: batch.column(name) for name in body_first(SCHEMA.names)}
            arrays = [made[name] for name in SCHEMA.names]
            self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
            self.rows += len(part)
            self._size += int(part[:, SIZE].sum())
            if self._size >= GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, SCHEMA, compression="zstd")
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._size = [], 0

    def close(self) -> bool:
        """Finish the file; False if there is none."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
        return self._writer is not None
