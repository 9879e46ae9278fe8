"""Arrow tables dealt out to tasks by the hash of a row's key, and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa


def by_bucket(table: Any, bucket_of: Any) -> Iterator[tuple[int, bytes]]:
    """Part a table by the bucket of each row; each part is an Arrow stream."""
    for bucket in np.unique(bucket_of).tolist():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.filter(pa.array(bucket_of == bucket)))
        yield bucket, sink.getvalue().to_pybytes()


def join_buckets(items: Iterable[tuple[int, bytes]], aggregation: tuple[str, str]) -> Any:
    """Put the parts of a bucket together and aggregate a column by topic and key; None for nothing."""
    tables = [pa.ipc.open_stream(data).read_all() for _, data in items]
    if not tables:
        return None
    return pa.concat_tables(tables).group_by(["topic", "key"]).aggregate([aggregation])
