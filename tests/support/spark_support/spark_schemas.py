"""Schemas of Spark by column names, without a session: what Spark hands to a reader."""

from __future__ import annotations

from typing import Any

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

from pipeline.source.schemas import HEADERS_TYPE, columns_of

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
