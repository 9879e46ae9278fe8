"""The data source's two halves: checked options and schemas while planning, batches in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.errors import InvalidOption
from pipeline.source.options import ReadOptions, parse_options
from pipeline.source.pieces import Piece
from pipeline.source.plan import plan_messages
from pipeline.source.schemas import columns_of, ddl
from storage.view.store_view import StoreLocation


def declared_columns(options: ReadOptions) -> dict[str, str]:
    """Return the columns that a read without a schema of the user's has."""
    return columns_of(
        options.table,
        kafka=options.kafka_columns,
        headers=options.include_headers,
        store=options.several,
    )


def declared_schema(given: dict[str, str]) -> str:
    """Return the schema for the options, in SQL."""
    return ddl(declared_columns(parse_options(given, streaming=None)))


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


class Task(InputPartition):
    """What one task reads; everything it needs is in here."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)
        self.pieces = pieces


class MessageReader(DataSourceReader):
    """Reads messages."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = wanted_columns(options, schema)

    def partitions(self) -> list[InputPartition]:
        """Plan the read; the ends of all stores are fixed here."""
        return [Task(pieces) for pieces in plan_messages(self.options)]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yield the batches of one task. A read of nothing has one task without a partition."""
        if not isinstance(partition, Task):
            return
        from pipeline.source.read import Reader

        yield from Reader(self.options, self.columns).read(partition.pieces)


class TablePart(InputPartition):
    """A part of another table than messages."""

    def __init__(self, store: StoreLocation | str, part: Any) -> None:
        super().__init__((store, part))
        self.store = store
        self.part = part


class TableReader(DataSourceReader):
    """Reads the other tables."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = wanted_columns(options, schema)

    def partitions(self) -> list[InputPartition]:
        """One part for the small tables of a store, one for each file of units or entries."""
        from pipeline.source.tables import parts_of

        if self.options.endpoint:
            return [TablePart(self.options.endpoint, None)]
        return [
            TablePart(store, part)
            for store in self.options.stores
            for part in parts_of(store, self.options.table)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yield the batches of one part."""
        if not isinstance(partition, TablePart):
            return
        from pipeline.source.tables import batch_of, read_part, remote_queues

        if self.options.endpoint:
            yield batch_of(remote_queues(self.options), str(partition.store), self.columns)
            return
        yield from read_part(
            StoreLocation.of(partition.store), self.options.table, partition.part, self.columns
        )
