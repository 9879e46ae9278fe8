"""The ceiling of any Python source: the same batches with nothing done to make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class SameBatches(DataSource):  # type: ignore[misc]  # Spark is an extra and has no types here
    """Reads one batch of a store and hands it out again and again, as many bytes as the log has."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "same-batches"

    def schema(self) -> str:
        """Return the columns of a read of everything."""
        from pipeline.source.source import declared_schema

        return declared_schema({"path": self.options["path"]})

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader."""
        return SameBatchesReader(self.options["path"], schema)


class SameBatchesReader(DataSourceReader):  # type: ignore[misc]
    """As many tasks as a read of the store has, each of as many bytes."""

    def __init__(self, store: str, schema: StructType) -> None:
        from pipeline.source.source import make_reader

        self.real: Any = make_reader({"path": store}, schema)

    def partitions(self) -> list[InputPartition]:
        """Plan as a real read does."""
        return list(self.real.partitions())

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read one full batch and yield it until the task's share of the log is reached."""
        task: Any = partition
        batches = self.real.read(task)
        first, batch = next(batches), next(batches)  # the first is short: runs find their length
        batches.close()
        yield first
        import pyarrow.compute as pc

        size = pc.sum(batch["size"]).as_py()
        left = sum(piece.cost for piece in task.pieces) - pc.sum(first["size"]).as_py()
        while left > 0:
            yield batch
            left -= size
