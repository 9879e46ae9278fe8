"""Tables as encoded records, a part at a time: bounded memory, whatever is sent."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.arrow.message_rows import ArrowRows, Encoder, MessageColumns
from storage.errors import InvalidMessage
from storage.format.stage import PREFIX_SIZE

ROWS_AT_ONCE: Final = 1 << 16  # of a batch, whatever the table has
_PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
_KEYS: Final = pa.list_(pa.string())
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
    delay_ms: str = "delay_ms"
    deliver_at_ms: str = "deliver_at_ms"


def parts_of(
    table: Any, names: TableColumns, *, topic: str, queue_count: int, first_row: int, first_end: int,
    is_again: bool, part_bytes: int, record_bytes_max: int, born_ms: int,
) -> Iterator[Part]:  # fmt: skip
    """Yield the rows from ``first_row`` on as records of a topic, in parts of ``part_bytes``, one record at least.

    ``table`` is what pyarrow can read as a stream of batches: its own tables, those of polars, pandas or
    DuckDB. It is read as it is sent, but where it ``is_again`` sent: then it is a table in memory. The first
    part ends at ``first_end`` if that is not 0. Raises InvalidMessage for what can be no message.
    """
    if is_again:
        table = _rest(table, first_row, first_end)
    prefix = np.frombuffer(secrets.token_hex(PREFIX_SIZE // 2).encode(), np.uint8)
    usual = np.empty(part_bytes, np.uint8)
    first, reader = None, _reader(table)
    if first_end:
        first, reader = (
            table.slice(0, first_end - first_row),
            _reader(table.slice(first_end - first_row)),
        )
    columns, schema = _columns(names, reader.schema)
    encoder = Encoder(columns, topic, lambda _: queue_count)
    if first is not None:
        rows = ArrowRows(encoder, _batch_of(first, schema, first_row), first_number=first_row)
        buffer = np.empty(record_bytes_max, np.uint8)
        end, size, _ = rows.encode(buffer, 0, prefix=prefix, sequence=0, born_ms=born_ms)
        if end != first_end - first_row:
            raise InvalidMessage("token", "is of another table: its rows do not fit that request")
        yield Part(first_end, buffer.data[:size])
    for begin, batch in _batches(reader, schema, first_end or first_row):
        rows = ArrowRows(encoder, batch, first_number=begin)
        for row, records in rows.encoded(
            usual, prefix=prefix, sequence=begin - first_row, born_ms=born_ms,
            size_max=record_bytes_max,
        ):  # fmt: skip
            yield Part(begin + row, records)


def _rest(table: Any, first_row: int, first_end: int) -> Any:
    """Return the rows of a table from one on. Raises InvalidMessage for a reader, which begins where it is."""
    if isinstance(table, pa.RecordBatchReader):
        raise InvalidMessage(
            "table", "is a reader, which cannot be read again: give a table with the same rows"
        )
    whole = pa.Table.from_batches(_reader(table)) if not isinstance(table, pa.Table) else table
    if whole.num_rows < max(first_row, first_end):
        raise InvalidMessage("token", f"is of another table: this one has {whole.num_rows} rows")
    return whole.slice(first_row)


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


def _batches(
    reader: pa.RecordBatchReader, schema: pa.Schema, first_row: int
) -> Iterator[tuple[int, Any]]:
    """Yield the wanted columns of batches, each with the number of its first row."""
    row = first_row
    for batch in reader:
        for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield row + begin, _batch_of(batch.slice(begin, ROWS_AT_ONCE), schema, row + begin)
        row += batch.num_rows


def _batch_of(given: Any, schema: pa.Schema, first_row: int) -> pa.RecordBatch:
    """Return the wanted columns of a batch or table as one batch. Raises InvalidMessage."""
    arrays = []
    for field in schema:
        try:
            # Of times what is less than a millisecond is left out; too large ones are refused.
            options = pc.CastOptions(target_type=field.type, allow_time_truncate=True)
            array = pc.cast(given.column(field.name), options=options)
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except pa.ArrowException as error:
            raise InvalidMessage(
                field.name, f"from row {first_row} on cannot be read as {field.type}: {error}"
            ) from None
        arrays.append(array)
    for array, field in zip(arrays, schema, strict=True):
        if field.type == _KEYS:
            _check_keys(array, field.name, first_row)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_keys(lists: Any, name: str, first_row: int) -> None:
    """Raise InvalidMessage for a list with a key that is null, or that would be two."""
    keys = lists.flatten()
    wrong = pc.or_kleene(pc.is_null(keys), pc.match_substring(keys, " "))
    at = pc.index(wrong, True).as_py()
    if at >= 0:
        row = first_row + pc.list_parent_indices(lists)[at].as_py()
        raise InvalidMessage(
            name, f"in row {row} has a key that is null, or contains a space, which separates keys"
        )


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
        names.delay_ms: _delay_type,
        names.deliver_at_ms: _delivery_time_type,
    }
    found = {name: kind for name, kind in kinds.items() if name and name in given.names}
    for name in found:
        if given.names.count(name) > 1:
            raise InvalidMessage(name, "is a column that is there twice")
    at = names.deliver_at_ms
    if at in found and pa.types.is_timestamp(given.field(at).type) and not given.field(at).type.tz:
        raise InvalidMessage(at, "has times without a zone: give them one, or Unix milliseconds")
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
        delay_ms=names.delay_ms if names.delay_ms in found else None,
        deliver_at_ms=names.deliver_at_ms if names.deliver_at_ms in found else None,
    )
    return columns, schema


def _bytes_type(given: Any) -> Any:
    """Return binary; of text as well, whose bytes are UTF-8."""
    is_text = pa.types.is_string(given) or pa.types.is_large_string(given)
    return pa.string() if is_text or str(given) == "string_view" else pa.binary()


def _keys_type(given: Any) -> Any:
    return _KEYS if pa.types.is_nested(given) else pa.string()


def _properties_type(given: Any) -> Any:
    return _MAP if pa.types.is_map(given) else _PAIRS


def _delay_type(given: Any) -> Any:
    return pa.duration("ms") if pa.types.is_duration(given) else pa.int64()


def _delivery_time_type(given: Any) -> Any:
    return pa.timestamp("ms", given.tz) if pa.types.is_timestamp(given) else pa.int64()
