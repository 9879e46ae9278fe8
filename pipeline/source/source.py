"""The data source's two halves: checked options and schemas while planning, batches in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.errors import InvalidOption
from pipeline.source.options import ReadOptions, parse_options
from pipeline.source.plan import plan_messages
from pipeline.source.schemas import columns_of, ddl


def declared_schema(given: dict[str, str]) -> str:
    """Return the schema, in SQL, of a read for which a user gives none."""
    options = parse_options(given, streaming=None)
    return ddl(
        columns_of(
            options.table,
            kafka=options.kafka_columns,
            headers=options.include_headers,
            store=options.several,
        )
    )


def wanted_columns(options: ReadOptions, schema: StructType) -> Any:
    """Check a schema against what can be read; return the Columns. Raises InvalidOption."""
    from pipeline.source.schemas import Columns

    known = columns_of(options.table, kafka=options.kafka_columns, headers=True, store=True)
    if options.table == "messages":
        known["_corrupt"] = "string"
    else:
        known.pop("headers")
    for field in schema.fields:
        if field.name not in known:
            raise InvalidOption(
                "schema", f"no column is called {field.name!r}; columns: {', '.join(known)}"
            )
        if field.dataType.simpleString() != known[field.name]:
            raise InvalidOption(
                "schema",
                f"column {field.name!r} is {known[field.name]}, not"
                f" {field.dataType.simpleString()}; read it so and cast it",
            )
        if not field.nullable:
            raise InvalidOption("schema", f"column {field.name!r} may be null; drop NOT NULL")
    return Columns(tuple(schema.names), to_arrow_schema(schema, timezone="UTC"))


def make_reader(given: dict[str, str], schema: StructType) -> DataSourceReader:
    """Check everything that can be checked and return a reader."""
    options = parse_options(given)
    if options.table == "messages":
        return MessageReader(options, schema)
    return TableReader(options, schema)


class MessageReader(DataSourceReader):
    """Reads messages."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = wanted_columns(options, schema)

    def partitions(self) -> list[InputPartition]:
        """Plan the read; the ends of all stores are fixed here."""
        return [InputPartition(pieces) for pieces in plan_messages(self.options)]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yield the batches of one task. A read of nothing has one task, for the partition None."""
        if partition is not None and partition.value is not None:
            from pipeline.source.read import Reader

            yield from Reader(self.options, self.columns).read(partition.value)


class TableReader(DataSourceReader):
    """Reads the other tables."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = wanted_columns(options, schema)

    def partitions(self) -> list[InputPartition]:
        """One part for the small tables of a store, one for each file of units or entries."""
        from pipeline.source.tables import parts_of

        if self.options.endpoint:
            return [InputPartition((self.options.endpoint, None))]
        return [
            InputPartition((store, part))
            for store in self.options.stores
            for part in parts_of(store, self.options.table)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yield the batches of one part."""
        if partition is None or partition.value is None:
            return
        store, part = partition.value
        from pipeline.source.tables import batch_of, read_part, remote_queues

        if self.options.endpoint:
            yield batch_of(remote_queues(self.options), str(store), self.columns)
            return
        yield from read_part(store, self.options.table, part, self.columns)
