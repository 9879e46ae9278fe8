"""Reads as Spark makes them, without a session: schemas by column names, and what the tasks of a read give."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.source.options import parse_options
from pipeline.source.plan import plan_messages
from pipeline.source.read import Reader
from pipeline.source.schemas import HEADERS_TYPE, columns_of
from pipeline.source.source import wanted_columns
from storage import Message, MessageStore

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, Any] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
    HEADERS_TYPE: ArrayType(_HEADER),
}


def schema_of(*names: str, table: str = "messages") -> StructType:
    """The named columns of a table; all of them, headers too, if none is named."""
    kinds = columns_of(table, headers=table == "messages")
    return StructType([StructField(name, _TYPES[kinds[name]]) for name in names or kinds])


def read(*columns: str, **given: str) -> pa.Table:
    """Return some columns of a read, or all. Tasks go through a pickle, as they do to workers."""
    options = parse_options(given)
    wanted = wanted_columns(options, schema_of(*columns))
    reader = Reader(options, wanted)
    batches = [
        batch
        for task in plan_messages(options)
        for batch in reader.read(pickle.loads(pickle.dumps(task)))
    ]
    return pa.Table.from_batches(batches, wanted.schema)


def put(store: MessageStore, topic: str, queue_id: int, count: int, size: int = 10) -> None:
    """Store messages of a size in batches of 20."""
    message = Message(topic=topic, queue_id=queue_id, body=b"x" * size)
    for begin in range(0, count, 20):
        store.put_all([message] * min(20, count - begin))


def queue_rows(topic: str, queue_id: int, begin: int, end: int) -> list[tuple[str, int, int]]:
    """Return topic, queue id and offset of each message of a range."""
    return [(topic, queue_id, offset) for offset in range(begin, end)]
