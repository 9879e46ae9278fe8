"""Records as Arrow batches, and Arrow tables as records to send (the extra ``arrow``).

pyarrow and the kernels are loaded by the first call that needs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.errors import (
    Cancelled,
    ClientClosed,
    InvalidArgument,
    TableNotStored,
    UnknownOutcome,
)
from penstock.record import Records
from penstock.values import StoredBatch, StoredTable
from storage.errors import InvalidMessage

if TYPE_CHECKING:
    import pyarrow as pa

BYTES_AT_ONCE: Final = 2 << 20  # of records in one answer, where nothing else is said
PART_BYTES: Final = 2 << 20  # of records in one request
_TOKEN: Final = re.compile(r"(\d{1,18})-(\d{1,18}):(.*)")


class MissingArrow(ImportError):
    """pyarrow is not installed."""


@contextmanager
def _needs_arrow() -> Iterator[None]:
    """What is imported here needs pyarrow. Raises MissingArrow."""
    try:
        yield
    except ImportError as error:
        raise MissingArrow(
            f"tables need pyarrow: install penstock with its extra arrow ({error})"
        ) from error


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of the named columns, or of the usual ones. Raises MissingArrow, InvalidArgument."""
    with _needs_arrow():
        from storage.arrow import tables
    try:
        schema: pa.Schema = tables.schema_of(columns)
    except InvalidMessage as error:
        raise InvalidArgument(str(error), field=error.field) from None
    return schema


def batches_of_store(
    store: str, topic: str, schema: pa.Schema, storage_options: Mapping[str, Any], **options: Any
) -> list[pa.RecordBatch]:
    """Return the batches of a topic of a directory or URL, as ``storage.arrow.tables`` has them."""
    from storage.arrow import tables

    location = tables.StoreLocation.of(store, storage_options)
    return list(tables.batches_of_store(location, topic, schema, **options))


def table_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return batches as one table."""
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema)


def batches_of(records: Records, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the records of one answer as batches: one, or several where bodies unpack to more than 64 MiB."""
    from storage.arrow import tables

    return list(tables.batches_of(records.raw, schema))


class RecordRange(NamedTuple):
    """Records of one queue that are handed out together: from which queue offset on, and where to go on."""

    records: Records
    queue_offset: int
    next_offset: int


def ranges_between(
    records: Records, damaged: Sequence[int], begin: int, end: int
) -> list[RecordRange]:
    """Cut the records of queue offsets ``[begin, end)`` at those of damaged ones."""
    if not damaged:
        return [RecordRange(records, begin, end)] if len(records) else []
    ranges: list[RecordRange] = []
    raw = records.raw
    for before, after in zip((begin - 1, *damaged), (*damaged, end), strict=True):
        mine = [each for each in records if before < each.queue_offset < after]
        if mine:
            first = mine[0]._position  # of ours: where it lies in ``raw``
            last = mine[-1]._position + mine[-1].size
            part = Records(raw[first:last], len(mine))
            ranges.append(RecordRange(part, before + 1, after))
    return ranges


class TableSend:
    """The requests that a table becomes, one after the other; no I/O.

    A token is ``ROW-END:REQUEST``: the first row that is not known to be stored, and the rows and the token of
    the request with it, which are 0 and empty where that request was not sent or was refused.
    """

    def __init__(
        self, table: Any, names: Sequence[str], *, topic: str, queue_count: int, part_bytes: int,
        record_bytes_max: int, born_ms: int, token: str,
    ) -> None:  # fmt: skip
        """Take a table, or a token and the table that it is of. Raises MissingArrow, InvalidArgument."""
        with _needs_arrow():
            from storage.arrow import sending
        first_row, first_end, self.request_token = _parsed_token(token)
        self._row = self._end_row = first_row
        self._batches: list[StoredBatch] = []
        self._parts = sending.parts_of(
            table, sending.TableColumns(*names), topic=topic, queue_count=queue_count,
            first_row=first_row, first_end=first_end, is_again=bool(token), part_bytes=part_bytes,
            record_bytes_max=record_bytes_max, born_ms=born_ms,
        )  # fmt: skip

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the records of each request. Raises InvalidArgument, and what the table's own reading does."""
        try:
            for part in self._parts:
                self._end_row = part.end_row
                yield part.records
        except InvalidMessage as error:
            raise InvalidArgument(str(error), field=error.field) from None

    def on_stored(self, batch: StoredBatch) -> None:
        """Take in that the request yielded last is stored. Raises InvalidArgument if it was another one."""
        if batch.record_count != self._end_row - self._row:
            raise InvalidArgument(
                f"the token is of another table: {batch.record_count} rows are stored by it,"
                f" and rows {self._row} to {self._end_row} were to be",
                field="token",
            )
        self._row, self.request_token = self._end_row, ""
        self._batches.append(batch)

    @property
    def stored(self) -> StoredTable:
        """All that is stored."""
        return StoredTable(row_count=self._row, batches=tuple(self._batches))

    def failed(self, error: Exception) -> Exception:
        """Return what to raise for a failure: the error itself where this call has stored nothing, and knows it.

        A token that the call was given is good for another one then.
        """
        error = self._of_row(error)
        is_unknown = isinstance(error, UnknownOutcome | ClientClosed | Cancelled)
        if not self._batches and not is_unknown:
            return error
        token = f"{self._row}-0:"
        if is_unknown:
            request = error.token if isinstance(error, UnknownOutcome) else ""
            token = f"{self._row}-{self._end_row}:{request}" if request else ""
        return TableNotStored(error, stored_rows=self._row, token=token)

    def _of_row(self, error: Exception) -> Exception:
        """Return an error that names the row, where it is a refusal of one record of the request."""
        if not isinstance(error, InvalidArgument) or error.record_index < 0:
            return error
        row = self._row + error.record_index
        problem = error.message.removeprefix(f"record {error.record_index}: ")
        return type(error)(
            f"row {row}: {problem}", reason=error.reason, field=error.field, record_index=row
        )


def _parsed_token(token: str) -> tuple[int, int, str]:
    if not token:
        return 0, 0, ""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        raise InvalidArgument(
            f"{token!r} is no token of a TableNotStored", field="token", reason="INVALID_TOKEN"
        )
    return int(parts[1]), int(parts[2]), parts[3]
