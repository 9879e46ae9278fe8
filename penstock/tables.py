"""Records as Arrow batches, and Arrow tables as records to send (the extra ``arrow``).

pyarrow and the kernels are loaded by the first call that needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.errors import InvalidArgument, PenstockError, TableNotStored, UnknownOutcome
from penstock.record import Records
from penstock.values import StoredBatch, StoredTable
from storage.errors import InvalidMessage

if TYPE_CHECKING:
    import pyarrow as pa

BYTES_AT_ONCE: Final = 2 << 20  # of records in one answer, where nothing else is said
PART_BYTES: Final = 2 << 20  # of records in one request


class MissingArrow(ImportError):
    """pyarrow is not installed."""


@contextmanager
def _needs_arrow() -> Iterator[None]:
    """What is imported here needs pyarrow. Raises MissingArrow."""
    try:
        yield
    except ImportError as error:
        raise MissingArrow(f"tables need pyarrow: pip install penstock[arrow] ({error})") from error


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
    store: str, topic: str, schema: pa.Schema, **options: Any
) -> list[pa.RecordBatch]:
    """Return the batches of a topic of a directory, as ``storage.arrow.tables`` has them."""
    from storage.arrow import tables

    return list(tables.batches_of_store(store, topic, schema, **options))


def table_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return batches as one table."""
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema)


class Pieces:
    """The batches of one answer after the other: one each, unless compressed bodies grow beyond 64 MiB."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._following: Iterator[pa.RecordBatch] = iter(())
        self._next: pa.RecordBatch | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all batches are handed out."""
        return self._next is None

    def fill(self, records: Records) -> None:
        """Take the records of an answer, which may be none."""
        from storage.arrow import tables

        self._following = tables.batches_of(records.raw, self.schema)
        self._next = next(self._following, None)

    def pop(self) -> pa.RecordBatch:
        """Hand out the next batch."""
        batch = self._next
        self._next = next(self._following, None)
        return batch


class RecordRange(NamedTuple):
    """Records of one queue that are handed out together, up to a queue offset."""

    records: Records
    queue_offset: int


def ranges_between(records: Records, damaged: Sequence[int], last: int) -> list[RecordRange]:
    """Cut records of a queue at the queue offsets of damaged ones; ``last`` is the last offset of them all."""
    if not damaged:
        return [RecordRange(records, last)] if len(records) else []
    ranges: list[RecordRange] = []
    raw = records.raw
    for before, after in zip((-1, *damaged), (*damaged, last + 1), strict=True):
        mine = [each for each in records if before < each.queue_offset < after]
        if mine:
            begin = mine[0]._position  # of ours: where it lies in ``raw``
            end = mine[-1]._position + mine[-1].size
            ranges.append(RecordRange(Records(raw[begin:end], len(mine)), mine[-1].queue_offset))
    return ranges


class TableSend:
    """The requests that a table becomes, one after the other; no I/O.

    A token is ``ROW:REQUEST``: the first row that is not known to be stored, and the token of the request with
    it, empty where that request was not sent or was refused.
    """

    def __init__(
        self, table: Any, names: Sequence[str], *, topic: str, queue_count: int, part_bytes: int,
        born_ms: int, token: str,
    ) -> None:  # fmt: skip
        """Take a table, or a token and the table that it is of. Raises MissingArrow, InvalidArgument."""
        first_row, self.request_token = _parsed_token(token)
        with _needs_arrow():
            from storage.arrow import sending
        self._row = self._end_row = first_row
        self._batches: list[StoredBatch] = []
        self._parts = sending.parts_of(
            table, sending.TableColumns(*names), topic=topic, queue_count=queue_count,
            first_row=first_row, part_bytes=part_bytes, born_ms=born_ms,
        )  # fmt: skip

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the records of each request. Raises InvalidArgument."""
        try:
            for part in self._parts:
                self._end_row = part.end_row
                yield part.records
        except InvalidMessage as error:
            raise InvalidArgument(str(error), field=error.field) from None

    def on_stored(self, batch: StoredBatch) -> None:
        """Take in that the request yielded last is stored."""
        self._row, self.request_token = self._end_row, ""
        self._batches.append(batch)

    @property
    def stored(self) -> StoredTable:
        """All that is stored."""
        return StoredTable(row_count=self._row, batches=tuple(self._batches))

    def failed(self, error: PenstockError) -> PenstockError:
        """Return what to raise for the failure of a request."""
        is_unknown = isinstance(error, UnknownOutcome)
        if not self._row and not is_unknown:
            return error
        request = error.token if isinstance(error, UnknownOutcome) else ""
        token = f"{self._row}:{request}" if request or not is_unknown else ""
        return TableNotStored(error, stored_rows=self._row, token=token)


def _parsed_token(token: str) -> tuple[int, str]:
    row, colon, request = token.partition(":")
    if not token:
        return 0, ""
    if not colon or not row.isdecimal():
        raise InvalidArgument(
            f"{token!r} is no token of a TableNotStored", field="token", reason="INVALID_TOKEN"
        )
    return int(row), request
