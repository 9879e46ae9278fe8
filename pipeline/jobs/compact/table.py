"""SliceOutputs records as Parquet files, one for each task, with the columns of the table ``messages``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pipeline.jobs.new_store.log_slices import LogSlice, Rows, ServedRecords, read_slice
from pipeline.jobs.parquet_files import ParquetFile, arrow_schema
from pipeline.jobs.work import in_tasks, run_tasks
from pipeline.source.decode import columns_of
from pipeline.source.schemas import CORRUPT, MESSAGE_COLUMNS
from storage.arrow.record_columns import RecordColumns, in_batches
from storage.arrow.rows import parts_of
from storage.kernels.columns import ByteArray
from storage.view.log.walk import DamagedRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_BYTES: Final = 16 << 20  # of records that are decoded at a time
SCHEMA: Final = arrow_schema({**MESSAGE_COLUMNS, CORRUPT: "string"})


def write_parquet(
    spark: SparkSession,
    slices: Sequence[LogSlice],
    selection: ServedRecords,
    directory: Path,
    *,
    counter: Any,
) -> tuple[int, list[DamagedRange]]:
    """Write what is chosen; return how many records there are and the damage that was left out."""
    tasks = list(enumerate(in_tasks(spark, slices)))
    write = partial(_write_file, selection=selection, directory=str(directory), counter=counter)
    results = run_tasks(spark, tasks, write)
    return sum(count for count, _ in results), [each for _, damage in results for each in damage]


def _write_file(
    item: tuple[int, Sequence[LogSlice]], *, selection: ServedRecords, directory: str, counter: Any
) -> tuple[int, list[DamagedRange]]:
    number, slices = item
    path = Path(directory, f"part-{number:05d}.parquet")
    partial_path = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    written = ParquetFile(partial_path, SCHEMA)
    damage: list[DamagedRange] = []
    for log_slice in slices:
        chosen = read_slice(log_slice, selection)
        damage += [each for _, each in chosen.damage]
        for part in chosen.outputs.get(0, []):
            for rows in parts_of(part.rows, BATCH_BYTES):
                for batch in in_batches(rows, partial(_decoded, part.data)):
                    written.add(batch)
        counter.add(log_slice.cost)
    if written.close():
        partial_path.replace(path)
    return written.rows, damage


def _decoded(data: ByteArray, rows: Rows) -> pa.RecordBatch:
    batch = RecordColumns(data, rows, decompress_bodies=True)
    made = columns_of(batch, SCHEMA.names)
    return pa.RecordBatch.from_arrays([made[name] for name in SCHEMA.names], schema=SCHEMA)
