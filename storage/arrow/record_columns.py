"""Rows of a scan as Arrow arrays: at most one kernel call a column, none a record.

Two things are done one by one, and only where they occur: compressed bodies are decompressed, and
each distinct host becomes text once a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import UnreadableBody
from storage.format.compression import decompress
from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE, decode_host
from storage.format.properties import KEY_SEPARATOR, RESERVED, TAGS
from storage.format.record_layout import (
    BODY_CRC_POSITION,
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    FLAG_POSITION,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels import arrow as kernels
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    COMMIT_OFFSET,
    FEATURES,
    HAS_KEYS,
    HAS_TAGS,
    HAS_UNIQ_KEY,
    KEYS_LENGTH,
    KEYS_POSITION,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE,
    STORE_TIMESTAMP,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    UNIQ_KEY_LENGTH,
    UNIQ_KEY_POSITION,
    ByteArray,
    fields_at,
)

COMMIT_OFFSET_SIZE: Final = 8
_DIGITS: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)  # of each byte
TAGS_NAME: Final = np.frombuffer(TAGS.encode(), np.uint8)
_NO_NAME: Final = np.empty(0, np.uint8)
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
UNKNOWN: Final = -1  # Arrow counts the nulls when it has to
RESERVED_NAMES: Final = pa.array(sorted(RESERVED), pa.string())

UNPACKED_BYTES_MAX: Final = 64 << 20  # of the compressed bodies of one batch; one is always taken

Rows = npt.NDArray[np.int64]
Longs = npt.NDArray[np.int64]
Array = Any  # pyarrow ships no types
_T = TypeVar("_T")


class TooMuchUnpacked(Exception):
    """The bodies of a batch's rows unpack to more than one batch may hold."""


def in_batches(rows: Rows, make: Callable[[Rows], _T]) -> Iterator[_T]:
    """Yield what ``make`` makes of all the rows; of fewer at a time while it raises TooMuchUnpacked."""
    try:
        made = make(rows)
    except TooMuchUnpacked:
        half = len(rows) // 2
        yield from in_batches(rows[:half], make)
        yield from in_batches(rows[half:], make)
    else:
        yield made


class RecordColumns:
    """Records of one array, some of the rows of a scan; each column is made when it is asked for."""

    def __init__(self, data: ByteArray, rows: Rows, *, decompress_bodies: bool) -> None:
        self.data = data
        self.rows = rows
        self.decompress_bodies = decompress_bodies
        self.broken: dict[
            int, str
        ] = {}  # rows whose body is as stored: it cannot be unpacked, and why

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> Array:
        """Return one column of COLUMNS."""
        return COLUMNS[name](self)

    def of_rows(self, column: int, kind: Any = np.int64) -> Array:
        """Return one column of the rows."""
        return pa.array(self.rows[:, column].astype(kind))

    def fields(self, positions: Longs, kind: str) -> Array:
        """Return the numbers of a kind, such as ``">i4"``, at positions of the data."""
        found = fields_at(self.data, positions, kind)
        return pa.array(found.astype(found.dtype.newbyteorder("=")))

    def after_hosts(self) -> Longs:
        """Return where each record goes on after its hosts."""
        positions, sizes = self._store_hosts()
        return positions + sizes

    def _column(
        self, position: int, length: int, kind: Any, feature: int = 0, name: ByteArray = _NO_NAME
    ) -> Array:
        """Return what two columns of the rows name, or the property called ``name`` in it."""
        count = len(self.rows)
        offsets = np.empty(count + 1, np.int32)
        present = np.zeros((count + 7) // 8 if feature else 0, np.uint8)

        def gather(out: ByteArray) -> int:
            return kernels.gather_column(
                self.data, self.rows, position, length, name, feature, int(kind == pa.string()),
                offsets, present, out,
            )  # fmt: skip

        out = np.empty(int(self.rows[:, length].sum()), np.uint8)
        written = gather(out)
        if written == kernels.NO_ROOM:
            out = np.empty(3 * len(out), np.uint8)
            written = gather(out)
        return _binary(offsets, out[: _whole(written)], kind, present if feature else None)

    def topic(self) -> Array:
        return self._column(TOPIC_POSITION, TOPIC_LENGTH, pa.string())  # a scan lets ASCII by

    def message_id(self) -> Array:
        """The client's unique id; without one, the offset message id, as a consumer has it."""
        unique = (self.rows[:, FEATURES] & HAS_UNIQ_KEY) != 0
        ids = self.unique_key()
        return ids if unique.all() else pc.coalesce(ids, self.offset_message_id())

    def unique_key(self) -> Array:
        """The client's unique id; null without one."""
        return self._column(UNIQ_KEY_POSITION, UNIQ_KEY_LENGTH, pa.string(), HAS_UNIQ_KEY)

    def offset_message_id(self) -> Array:
        positions, sizes = self._store_hosts()
        ids = self._hosts(positions, sizes, IPV6_HOST_SIZE + COMMIT_OFFSET_SIZE)
        offsets = self.rows[:, COMMIT_OFFSET].astype(">i8").view(np.uint8).reshape(-1, 8)
        for at in range(COMMIT_OFFSET_SIZE):
            ids[np.arange(len(ids)), sizes + at] = offsets[:, at]
        digits = _DIGITS[ids].view(np.uint8)
        digit_counts = 2 * (sizes + COMMIT_OFFSET_SIZE)
        ends = np.concatenate(([0], np.cumsum(digit_counts))).astype(np.int32)
        is_digit = np.arange(digits.shape[1]) < digit_counts[:, None]
        return _binary(ends, digits[is_digit], pa.string())

    def tags(self) -> Array:
        """The tag; null without one."""
        return self._column(
            PROPERTIES_POSITION, PROPERTIES_LENGTH, pa.string(), HAS_TAGS, TAGS_NAME
        )

    def keys(self) -> Array:
        return self._column(KEYS_POSITION, KEYS_LENGTH, pa.string(), HAS_KEYS)

    def key_list(self) -> Array:
        """The keys as a list; null without any."""
        return pc.split_pattern(self.keys(), KEY_SEPARATOR)

    def body(self) -> Array:
        stored = self._column(BODY_POSITION, BODY_LENGTH, pa.binary())
        packed = (self.rows[:, SYS_FLAG] & SYS_FLAG_COMPRESSED) != 0
        if not self.decompress_bodies or not packed.any():
            return stored
        bodies: list[bytes] = []
        unpacked_bytes = 0
        for row in np.flatnonzero(packed).tolist():
            body = stored[row].as_py()
            try:
                body = decompress(body, int(self.rows[row, SYS_FLAG]))
            except UnreadableBody as error:
                self.broken[row] = f"the body cannot be unpacked: {error}"
            bodies.append(body)
            unpacked_bytes += len(body)
            if unpacked_bytes > UNPACKED_BYTES_MAX and len(self.rows) > 1:
                raise TooMuchUnpacked
        return pc.replace_with_mask(stored, pa.array(packed), pa.array(bodies, pa.binary()))

    def reasons(self) -> Array:
        """Why a body is as stored, null where it is not; known once the bodies are made."""
        if not self.broken:
            return pa.nulls(len(self.rows), pa.string())
        return pa.array([self.broken.get(row) for row in range(len(self.rows))], pa.string())

    def _pairs(self, value_kind: Any) -> tuple[npt.NDArray[np.int32], Array, Array]:
        """Return where the pairs of each record begin, names, and values; of equal names the last value."""
        size = int(self.rows[:, PROPERTIES_LENGTH].sum())
        capacity = size // 4 + len(self.rows) + 2
        pair_offsets = np.empty(len(self.rows) + 1, np.int32)
        name_offsets, value_offsets = np.empty((2, capacity), np.int32)

        def gather(names: ByteArray, values: ByteArray) -> int:
            return kernels.gather_pairs(
                self.data, self.rows, int(value_kind != pa.string()), pair_offsets, name_offsets,
                names, value_offsets, values,
            )  # fmt: skip

        names, values = np.empty((2, size), np.uint8)
        count = gather(names, values)
        if count == kernels.NO_ROOM:
            names, values = np.empty((2, 3 * size), np.uint8)
            count = gather(names, values)
        count = _whole(count)
        return (
            pair_offsets,
            _binary(name_offsets[: count + 1], names, pa.string()),
            _binary(value_offsets[: count + 1], values, value_kind),
        )

    def properties(self) -> Array:
        """All properties; of equal names the last value."""
        offsets, names, values = self._pairs(pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    def headers(self) -> Array:
        """The user's own properties as Kafka has headers; null without any."""
        bounds, names, values = self._own_pairs(pa.binary())
        pairs = pa.StructArray.from_arrays(
            [names, values], fields=[pa.field("key", pa.string()), pa.field("value", pa.binary())]
        )
        return pa.ListArray.from_arrays(
            pa.array(bounds), pairs, mask=pa.array(bounds[1:] == bounds[:-1])
        )

    def own_properties(self) -> Array:
        """The user's own properties, without keys, tag and what else the store has among them."""
        bounds, names, values = self._own_pairs(pa.string())
        return pa.MapArray.from_arrays(pa.array(bounds), names, values)

    def _own_pairs(self, value_kind: Any) -> tuple[npt.NDArray[np.int32], Array, Array]:
        offsets, names, values = self._pairs(value_kind)
        mine = pc.invert(pc.is_in(names, RESERVED_NAMES))
        kept = mine.to_numpy(zero_copy_only=False)
        before = np.concatenate(([0], np.cumsum(kept))).astype(np.int32)
        return before[offsets], names.filter(mine), values.filter(mine)

    def _born_hosts(self) -> tuple[Longs, Longs]:
        wide = (self.rows[:, SYS_FLAG] & SYS_FLAG_BORN_HOST_V6) != 0
        lengths = np.where(wide, IPV6_HOST_SIZE, IPV4_HOST_SIZE).astype(np.int64)
        return self.rows[:, POSITION] + BORN_HOST_POSITION, lengths

    def _store_hosts(self) -> tuple[Longs, Longs]:
        wide = (self.rows[:, SYS_FLAG] & SYS_FLAG_STORE_HOST_V6) != 0
        lengths = np.where(wide, IPV6_HOST_SIZE, IPV4_HOST_SIZE).astype(np.int64)
        return self.rows[:, STORE_TIMESTAMP_POSITION] + 8, lengths

    def _hosts(self, positions: Longs, sizes: Longs, width: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of hosts, one a line of ``width``, zeros after them."""
        hosts = np.zeros((len(positions), width), np.uint8)
        for size in (IPV4_HOST_SIZE, IPV6_HOST_SIZE):
            mine = np.flatnonzero(sizes == size)
            hosts[mine, :size] = self.data[positions[mine, None] + np.arange(size)]
        return hosts

    def hosts(self, positions: Longs, sizes: Longs) -> Array:
        """Each distinct host becomes text once."""
        width = IPV6_HOST_SIZE + 1
        lines = self._hosts(positions, sizes, width)
        lines[:, -1] = sizes
        values = pa.Array.from_buffers(pa.binary(width), len(lines), [None, pa.py_buffer(lines)], 0)
        found = values.dictionary_encode()
        texts = [_host_text(line[: line[-1]]) for line in found.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(found.indices)

    def born_timestamp(self) -> Array:
        times = fields_at(self.data, self.rows[:, POSITION] + BORN_TIMESTAMP_POSITION, ">i8")
        return _timestamps(times)

    def store_timestamp(self) -> Array:
        return _timestamps(self.rows[:, STORE_TIMESTAMP])


COLUMNS: Final[
    dict[str, Callable[[RecordColumns], Array]]
] = {  # by the names of the client's records
    "topic": RecordColumns.topic,
    "queue_id": lambda batch: batch.of_rows(QUEUE_ID, np.int32),
    "queue_offset": lambda batch: batch.of_rows(QUEUE_OFFSET),
    "commit_offset": lambda batch: batch.of_rows(COMMIT_OFFSET),
    "size": lambda batch: batch.of_rows(SIZE, np.int32),
    "message_id": RecordColumns.offset_message_id,
    "unique_key": RecordColumns.unique_key,
    "tag": RecordColumns.tags,
    "keys": RecordColumns.key_list,
    "body": RecordColumns.body,
    "properties": RecordColumns.own_properties,
    "born_timestamp": RecordColumns.born_timestamp,
    "store_timestamp": RecordColumns.store_timestamp,
    "born_host": lambda batch: batch.hosts(*batch._born_hosts()),
    "store_host": lambda batch: batch.hosts(*batch._store_hosts()),
    "sys_flag": lambda batch: batch.of_rows(SYS_FLAG, np.int32),
    "flag": lambda batch: batch.fields(batch.rows[:, POSITION] + FLAG_POSITION, ">i4"),
    "body_crc": lambda batch: batch.fields(batch.rows[:, POSITION] + BODY_CRC_POSITION, ">i4"),
    "reconsume_times": lambda batch: batch.fields(batch.after_hosts(), ">i4"),
    "prepared_offset": lambda batch: batch.fields(batch.after_hosts() + 4, ">i8"),
}


@lru_cache(4096)
def _host_text(encoded: bytes) -> str:
    return decode_host(encoded)


def _timestamps(times_ms: Longs) -> Array:
    return pa.array(times_ms.astype(np.int64) * 1_000).cast(TIMESTAMP)


def _whole(result: int) -> int:
    if result < 0:
        raise ValueError("a range of the scan is not inside the array that was scanned")
    return result


def _binary(
    offsets: npt.NDArray[np.int32],
    values: ByteArray,
    kind: Any,
    present: ByteArray | None = None,
) -> Array:
    validity = None if present is None else pa.py_buffer(present)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(values[: int(offsets[-1])])]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, 0 if present is None else UNKNOWN)
