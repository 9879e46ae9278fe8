"""Parquet files of messages, written row group by row group, Arrow all the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.jobs.new_directory import sync_path

GROUP_BYTES: Final = 64 << 20
GROUP_ROWS: Final = 1 << 17
ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns whose types are named as Spark names them."""
    return pa.schema([(name, ARROW_TYPES[kind]) for name, kind in columns.items()])


class ParquetFile:
    """One file, which is made with its first row group: without rows there is none."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._schema = schema
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the file's schema."""
        self.rows += len(batch)
        self._waiting.append(batch)
        self._waiting_rows += len(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= GROUP_BYTES or self._waiting_rows >= GROUP_ROWS:
            self._write()

    def close(self) -> int:
        """Finish the file, durable on return; return its bytes, 0 if there is none."""
        if self._waiting:
            self._write()
        if self._writer is None:
            return 0
        self._writer.close()
        sync_path(self.path)
        return self.path.stat().st_size

    def _write(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self.path, self._schema, compression="zstd", write_page_index=True
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
