"""Tables as encoded records, a part at a time: bounded memory, whatever is sent."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from storage.arrow.message_rows import ArrowRows, Encoder, MessageColumns
from storage.errors import InvalidMessage
from storage.format.stage import PREFIX_SIZE

ROWS_AT_ONCE: Final = 1 << 16  # of a batch, whatever the table has
_PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
_MAP: Final = pa.map_(pa.string(), pa.string())


class Part(NamedTuple):
    """Encoded records of rows up to ``end_row``; the bytes are good until the next part."""

    end_row: int
    records: memoryview


class TableColumns(NamedTuple):
    """Which columns a message is made of; "" for none. One that the table does not have is left out."""

    body: str = "body"
    keys: str = "keys"
    tag: str = "tag"
    properties: str = "properties"
    queue_id: str = ""


def parts_of(
    table: Any, names: TableColumns, *, topic: str, queue_count: int, first_row: int,
    part_bytes: int, born_ms: int,
) -> Iterator[Part]:  # fmt: skip
    """Yield the rows from ``first_row`` on as records of a topic, in parts of ``part_bytes``, one record at least.

    ``table`` is what pyarrow can read as a stream of batches: its own tables, those of polars, pandas or
    DuckDB. The parts of the same rows have the same bounds. Raises InvalidMessage for what can be no message.
    """
    prefix = np.frombuffer(secrets.token_hex(PREFIX_SIZE // 2).encode(), np.uint8)
    buffer = np.empty(part_bytes, np.uint8)
    reader = _reader(table)
    columns, schema = _columns(names, reader.schema)
    encoder = Encoder(columns, topic, lambda _: queue_count)
    row = first_row
    for begin, batch in _batches(reader, schema):
        if begin + batch.num_rows <= row:
            continue
        rows = ArrowRows(encoder, batch, first_number=begin)
        while row < begin + rows.row_count:
            end, size, needed = rows.encode(
                buffer, row - begin, prefix=prefix, sequence=row - first_row, born_ms=born_ms
            )
            if needed:
                raise InvalidMessage(
                    columns.body,
                    f"in row {row} makes a record of {needed} bytes; the most is {part_bytes}",
                )
            row = begin + end
            yield Part(row, buffer.data[:size])


def _reader(table: Any) -> pa.RecordBatchReader:
    if isinstance(table, pa.RecordBatchReader):
        return table
    if isinstance(table, pa.RecordBatch):
        table = pa.table(table)
    if isinstance(table, pa.Table):
        return table.to_reader(ROWS_AT_ONCE)
    try:
        return pa.RecordBatchReader.from_stream(table)
    except TypeError:
        raise InvalidMessage(
            "table", f"is {type(table).__name__}, which is no table of Arrow's"
        ) from None


def _batches(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[tuple[int, Any]]:
    """Yield the wanted columns of batches, each with the number of its first row."""
    row = 0
    for batch in reader:
        for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
            mine = batch.slice(begin, ROWS_AT_ONCE)
            arrays = [mine.column(field.name).cast(field.type) for field in schema]
            yield row, pa.RecordBatch.from_arrays(arrays, schema=schema)
            row += mine.num_rows


def _columns(names: TableColumns, given: pa.Schema) -> tuple[MessageColumns, pa.Schema]:
    """Return the columns that there are, and the types to read them as. Raises InvalidMessage."""
    if names.body not in given.names:
        raise InvalidMessage(
            "body",
            f"is column {names.body!r}, which the table does not have; it has {', '.join(given.names)}",
        )
    if names.queue_id and names.queue_id not in given.names:
        raise InvalidMessage(
            "queue_id", f"is column {names.queue_id!r}, which the table does not have"
        )
    kinds: dict[str, Callable[[Any], Any]] = {
        names.body: _bytes_type,
        names.keys: _keys_type,
        names.tag: lambda _: pa.string(),
        names.properties: _properties_type,
        names.queue_id: lambda _: pa.int32(),
    }
    found = {name: kind for name, kind in kinds.items() if name and name in given.names}
    for name in found:
        if given.names.count(name) > 1:
            raise InvalidMessage(name, "is a column that is there twice")
    schema = pa.schema([(name, kind(given.field(name).type)) for name, kind in found.items()])
    columns = MessageColumns(
        body=names.body,
        keys=names.keys if names.keys in found else None,
        one_key=False,
        tags=names.tag if names.tag in found else None,
        headers=None,
        properties=names.properties if names.properties in found else None,
        topic=None,
        queue_id=names.queue_id or None,
    )
    return columns, schema


def _bytes_type(given: Any) -> Any:
    """Return binary; of text as well, whose bytes are UTF-8."""
    is_text = pa.types.is_string(given) or pa.types.is_large_string(given)
    return pa.string() if is_text or str(given) == "string_view" else pa.binary()


def _keys_type(given: Any) -> Any:
    return pa.list_(pa.string()) if pa.types.is_nested(given) else pa.string()


def _properties_type(given: Any) -> Any:
    return _MAP if pa.types.is_map(given) else _PAIRS
