"""Arrow batches to records: buffers in, encoded records out, no Python per message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidMessage
from storage.format.names import topic_name_problem
from storage.format.properties import PROPERTIES_SIZE_MAX
from storage.kernels import encode as kernel
from storage.kernels.encode import encode_rows

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]

CHUNK_SIZE: Final = 2 << 20  # of records in one message of the wire
SIZE_MAX: Final = (1 << 31) - 1  # of a record, whatever its size's four bytes can say
_NO_BYTES: Final = np.empty(0, np.uint8)
_ABSENT: Final = np.zeros(2, np.int32)
_EVERY_ROW: Final = np.zeros(1, np.int32)
_NO_QUEUES: Final = np.empty(0, np.int32)
_NO_TIMES: Final = np.empty(0, np.int64)

_PROBLEMS: Final = {
    kernel.BAD_KEY: ("keys", "holds bytes that are not text: U+0001, U+0002 or no UTF-8"),
    kernel.KEY_WITH_SPACE: (
        "keys",
        "contains a space, which separates keys; use the column 'keys' for several, or replace it",
    ),
    kernel.BAD_TAG: ("tags", "contains U+0001 or U+0002, or is not UTF-8"),
    kernel.TAG_WITH_BAR: ("tags", "contains '|', which separates tags in expressions; replace it"),
    kernel.TAG_WITH_BLANK: ("tags", "begins or ends with white space; trim it"),
    kernel.EMPTY_NAME: ("headers", "has an empty name"),
    kernel.RESERVED_NAME: (
        "headers",
        "has a name of the store's own, such as KEYS; read with includeHeaders what a user set",
    ),
    kernel.BAD_NAME: ("headers", "has a name with U+0001 or U+0002, or that is not UTF-8"),
    kernel.BAD_VALUE: ("headers", "has a value that is not text: U+0001, U+0002 or no UTF-8"),
}
_NO_DELAY: Final = f"which is not a number of milliseconds from 0 to {kernel.DELAY_MAX}"


@dataclass(frozen=True, kw_only=True)
class MessageColumns:
    """The names of the columns that a message is made of, None where there is none."""

    body: str
    keys: str | None
    one_key: bool
    tags: str | None
    headers: str | None
    properties: str | None
    topic: str | None
    queue_id: str | None
    delay_ms: str | None = None
    deliver_at_ms: str | None = None


class _Column(NamedTuple):
    data: Bytes
    offsets: Offsets


class _Pairs(NamedTuple):
    lists: Offsets
    names: _Column
    values: _Column


_NO_COLUMN: Final = _Column(_NO_BYTES, _ABSENT)
_NO_PAIRS: Final = _Pairs(_ABSENT, _NO_COLUMN, _NO_COLUMN)


class ArrowRows:
    """One Arrow batch ready to be encoded, from any row on and as often as wanted."""

    def __init__(self, encoder: Encoder, batch: pa.RecordBatch, *, first_number: int) -> None:
        """Take the buffers. Raises what the encoder refuses a column with, and what asking for queues does."""
        columns = self._columns = encoder.columns
        self.row_count = batch.num_rows
        self.byte_count = batch.nbytes
        self._encoder = encoder
        self._first_number = first_number
        body = batch.column(columns.body)
        if body.null_count:
            row = int(pc.index(body.is_null(), True).as_py())
            raise self._error(
                columns.body, row, "is null; a message has a body, which may be empty"
            )
        self._body = _text(body)
        self._topics = self._take_topics(batch)
        self._queues = _NO_QUEUES
        if columns.queue_id is not None:
            queue_ids = batch.column(columns.queue_id).cast(pa.int32())
            self._queues = np.ascontiguousarray(
                pc.fill_null(queue_ids, kernel.ANY_QUEUE).to_numpy(zero_copy_only=False), np.int32
            )
        self._keys = _NO_COLUMN if columns.keys is None else _keys(batch.column(columns.keys))
        self._tags = _NO_COLUMN if columns.tags is None else _text(batch.column(columns.tags))
        self._headers = _pairs(batch, columns.headers)
        self._properties = _pairs(batch, columns.properties)
        self._delays = _times(batch, columns.delay_ms)
        self._delivery_times = _times(batch, columns.deliver_at_ms)

    def _take_topics(self, batch: pa.RecordBatch) -> tuple[Offsets, _Column, npt.NDArray[np.int64]]:
        """Which topic each row has, the topics, and how many queues each has."""
        encoder = self._encoder
        if encoder.topic is not None:
            topics, topic_of = [encoder.topic], _EVERY_ROW
        else:
            column = batch.column(self._columns.topic)
            if column.null_count:
                row = int(pc.index(column.is_null(), True).as_py())
                raise self._error(
                    str(self._columns.topic), row, "is null; every message has a topic"
                )
            coded = column.dictionary_encode()
            topics = coded.dictionary.to_pylist()
            topic_of = np.ascontiguousarray(coded.indices.to_numpy(zero_copy_only=False), np.int32)
        counts = np.array([encoder.queue_count(topic) for topic in topics], np.int64)
        return topic_of, _text(pa.array(topics, pa.string())), counts

    def encode(
        self, buffer: Bytes, first_row: int, *, prefix: Bytes, sequence: int, born_ms: int
    ) -> tuple[int, int, int]:
        """Fill ``buffer`` from ``first_row`` on; return ``(next_row, size, needed)``.

        ``needed`` is 0, or the bytes that a first record takes which is longer than the buffer.
        Raises what the encoder refuses with for a row that can be no message.
        """
        topic_of, topics, queue_counts = self._topics
        next_row, size, problem, detail = encode_rows(
            buffer, len(buffer), first_row, self.row_count, *self._body, topic_of, *topics,
            queue_counts, self._queues, *self._keys, int(self._columns.one_key), *self._tags,
            self._headers.lists, *self._headers.names, *self._headers.values,
            self._properties.lists, *self._properties.names, *self._properties.values,
            self._delays, self._delivery_times, prefix, sequence, self._encoder.first_turn + self._first_number + first_row, born_ms,
        )  # fmt: skip
        if problem == kernel.ENCODED:
            return next_row, size, 0
        if problem == kernel.FULL:
            return next_row, size, 0 if next_row > first_row else detail
        raise self._row_error(next_row, problem, detail)

    def encoded(
        self, usual: Bytes, *, prefix: Bytes, sequence: int, born_ms: int, size_max: int = SIZE_MAX
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield all records, as many at a time as the usual buffer holds, with the row after them.

        Each part is good until the next. A longer record, of ``size_max`` bytes at most, has a buffer of its own.
        Raises as ``encode``.
        """
        row, buffer = 0, usual
        while row < self.row_count:
            next_row, size, needed = self.encode(
                buffer, row, prefix=prefix, sequence=sequence + row, born_ms=born_ms
            )
            if needed > size_max:
                problem = f"makes a record of {needed} bytes; the most is {size_max}"
                raise self._error(self._columns.body, row, problem)
            if needed:
                buffer = np.empty(needed, np.uint8)
                continue
            row = next_row
            yield row, buffer.data[:size]
            buffer = usual

    def _row_error(self, row: int, problem: int, detail: int) -> Exception:
        columns = self._columns
        if problem == kernel.BAD_QUEUE:
            return self._error(
                str(columns.queue_id), row, f"is {self._queues[row]}, which the topic does not have"
            )
        if problem == kernel.TOO_MUCH:
            return self._error(
                columns.headers or columns.properties or columns.keys or columns.body, row,
                f"makes {detail} bytes of properties, with keys and tags; the most is {PROPERTIES_SIZE_MAX}",
            )  # fmt: skip
        if problem == kernel.BAD_DELAY:
            return self._error(str(columns.delay_ms), row, f"is {self._delays[row]}, {_NO_DELAY}")
        if problem == kernel.BAD_DELIVERY_TIME:
            time_ms = self._delivery_times[row]
            return self._error(str(columns.deliver_at_ms), row, f"is {time_ms}, {_NO_DELAY}")
        if problem == kernel.TWO_DELAYS:
            return self._error(
                str(columns.delay_ms),
                row,
                f"is there beside {columns.deliver_at_ms}; give one of them",
            )
        field, text = _PROBLEMS.get(problem, ("value", f"cannot be encoded: problem {problem}"))
        name = {"keys": columns.keys, "tags": columns.tags, "headers": columns.headers}.get(field)
        if field == "headers" and (detail or columns.headers is None):
            name = columns.properties
        return self._error(name or field, row, text)

    def _error(self, column: str, row: int, text: str) -> Exception:
        encoder = self._encoder
        return encoder.refuse(column, f"in row {self._first_number + row}{encoder.of_what} {text}")


class Encoder:
    """Turns batches into rows; knows how many queues topics have."""

    def __init__(
        self,
        columns: MessageColumns,
        topic: str | None,
        ask: Callable[[str], int],
        *,
        first_turn: int = 0,
        refuse: Callable[[str, str], Exception] = InvalidMessage,
        of_what: str = "",
    ) -> None:
        """Take what rows share; ``ask`` returns how many queues of a topic can be written.

        ``first_turn`` is added to the rows' numbers where queues take turns. ``refuse`` makes the error for a
        column and its problem, in which the rows are those ``of_what``.
        """
        self.refuse = refuse
        self.of_what = of_what
        self.first_turn = first_turn
        self.columns = columns
        self.topic = topic
        self._ask = ask
        self._queue_counts: dict[str, int] = {}

    def queue_count(self, topic: str) -> int:
        """Return how many queues of a topic can be written. Raises what asking does."""
        count = self._queue_counts.get(topic)
        if count is None:
            problem = topic_name_problem(topic)
            if problem:
                raise self.refuse(str(self.columns.topic), f"has the value {topic!r}: {problem}")
            count = self._queue_counts[topic] = self._ask(topic)
        return count


def chunks(
    parts: list[ArrowRows], prefix: str, born_ms: int, *, chunk_size: int = CHUNK_SIZE
) -> Iterator[memoryview]:
    """Yield the records in chunks; each is good until the next. Raises as ``ArrowRows.encode``.

    The unique key of a record is ``prefix`` and its number.
    """
    usual = np.empty(chunk_size, np.uint8)
    prefix_bytes = np.frombuffer(prefix.encode(), np.uint8)
    sequence = 0
    for rows in parts:
        found = rows.encoded(usual, prefix=prefix_bytes, sequence=sequence, born_ms=born_ms)
        yield from (data for _, data in found)
        sequence += rows.row_count


def _text(array: Any) -> _Column:
    """Return a column of text or bytes; null is as empty."""
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        if array.null_count:
            array = pc.fill_null(array, "" if pa.types.is_string(array.type) else b"")
    else:
        array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    values = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return _Column(values, places)


def _keys(array: Any) -> _Column:
    if pa.types.is_list(array.type):
        array = pc.binary_join(array, " ")
    return _text(array)


def _times(batch: pa.RecordBatch, name: str | None) -> npt.NDArray[np.int64]:
    """Return a column of milliseconds, 0 for null."""
    if name is None:
        return _NO_TIMES
    times = pc.fill_null(batch.column(name).cast(pa.int64()), 0)
    return np.ascontiguousarray(times.to_numpy(zero_copy_only=False), np.int64)


def _pairs(batch: pa.RecordBatch, name: str | None) -> _Pairs:
    """Return a list or map column of names and values."""
    if name is None:
        return _NO_PAIRS
    array = batch.column(name)
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    lists = offsets[array.offset : array.offset + len(array) + 1]
    if array.null_count:
        # Arrow lets a null list have a range of its own, which counts for nothing.
        lengths = np.diff(lists)
        null = np.asarray(array.is_null())
        if lengths[null].any():
            array = pa.array(array.to_pylist(), array.type)
            lists = np.frombuffer(array.buffers()[1], np.int32)[: len(array) + 1]
    if pa.types.is_map(array.type):
        names, values = array.keys, array.items
    else:
        names, values = array.values.field(0), array.values.field(1)
    return _Pairs(lists, _pair_text(names), _pair_text(values))


def _pair_text(array: Any) -> _Column:
    """Return names or values of pairs, which are looked up by number and not by row."""
    if array.null_count:
        array = pc.fill_null(array, "" if pa.types.is_string(array.type) else b"")
    _, offsets, data = array.buffers()
    values = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    if offsets is None or len(array) == 0:
        return _Column(values, _ABSENT)
    return _Column(values, np.frombuffer(offsets, np.int32)[array.offset :])
