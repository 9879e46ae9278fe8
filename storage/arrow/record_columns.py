"""Rows of a scan as Arrow arrays: at most one kernel call a column, none a record.

Two things are done one by one, and only where they occur: compressed bodies are decompressed, and
each distinct host becomes text once a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
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
    BORN_HOST_POSITION,
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
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    UNIQ_KEY_LENGTH,
    UNIQ_KEY_POSITION,
    ByteArray,
)

HOSTS_MAX: Final = 256
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

    def _longs(self, column: int) -> Longs:
        return np.ascontiguousarray(self.rows[:, column])

    @cached_property
    def _numbers(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        ints = np.empty((kernels.INT_COUNT, len(self.rows)), np.int32)
        longs = np.empty((kernels.LONG_COUNT, len(self.rows)), np.int64)
        _whole(kernels.read_numbers(self.data, self.rows, ints, longs))
        return ints, longs

    def int_column(self, number: int) -> Array:
        """Return one of the 32-bit numbers, by its INT_* name in ``storage.kernels.arrow``."""
        return _numeric(self._numbers[0][number], pa.int32())

    def long_column(self, number: int, kind: Any = None) -> Array:
        """Return one of the 64-bit numbers, by its LONG_* name in ``storage.kernels.arrow``."""
        return _numeric(self._numbers[1][number], kind or pa.int64())

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
        positions, lengths = self._store_hosts()
        offsets = np.empty(len(self.rows) + 1, np.int32)
        out = np.empty(len(self.rows) * 56, np.uint8)
        commit_offsets = self._longs(COMMIT_OFFSET)
        _whole(kernels.message_ids(self.data, positions, lengths, commit_offsets, offsets, out))
        return _binary(offsets, out, pa.string())

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
        return self._longs(POSITION) + BORN_HOST_POSITION, lengths

    def _store_hosts(self) -> tuple[Longs, Longs]:
        wide = (self.rows[:, SYS_FLAG] & SYS_FLAG_STORE_HOST_V6) != 0
        lengths = np.where(wide, IPV6_HOST_SIZE, IPV4_HOST_SIZE).astype(np.int64)
        return self._longs(STORE_TIMESTAMP_POSITION) + 8, lengths

    def hosts(self, positions: Longs, lengths: Longs) -> Array:
        numbers = np.empty(len(positions), np.int32)
        firsts = np.empty(HOSTS_MAX, np.int64)
        distinct = int(kernels.number_hosts(self.data, positions, lengths, numbers, firsts))
        if distinct < 0:
            if len(positions) <= HOSTS_MAX:
                raise ValueError("a host is not inside the array that was scanned")
            half = len(positions) // 2
            return pa.concat_arrays(
                [self.hosts(positions[:half], lengths[:half]),
                 self.hosts(positions[half:], lengths[half:])]
            )  # fmt: skip
        texts = [
            _host_text(self.data[positions[row] : positions[row] + lengths[row]].tobytes())
            for row in firsts[:distinct].tolist()
        ]
        if distinct == 1:
            return pa.repeat(pa.scalar(texts[0], pa.string()), len(positions))
        return pa.array(texts, pa.string()).take(pa.array(numbers))

    def born_timestamp(self) -> Array:
        return self.long_column(kernels.LONG_BORN_TIMESTAMP, TIMESTAMP)

    def store_timestamp(self) -> Array:
        return self.long_column(kernels.LONG_STORE_TIMESTAMP, TIMESTAMP)


COLUMNS: Final[
    dict[str, Callable[[RecordColumns], Array]]
] = {  # by the names of the client's records
    "topic": RecordColumns.topic,
    "queue_id": lambda batch: batch.int_column(kernels.INT_QUEUE_ID),
    "queue_offset": lambda batch: batch.long_column(kernels.LONG_QUEUE_OFFSET),
    "commit_offset": lambda batch: batch.long_column(kernels.LONG_COMMIT_OFFSET),
    "size": lambda batch: batch.int_column(kernels.INT_SIZE),
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
    "sys_flag": lambda batch: batch.int_column(kernels.INT_SYS_FLAG),
    "flag": lambda batch: batch.int_column(kernels.INT_FLAG),
    "body_crc": lambda batch: batch.int_column(kernels.INT_BODY_CRC),
    "reconsume_times": lambda batch: batch.int_column(kernels.INT_RECONSUME_TIMES),
    "prepared_offset": lambda batch: batch.long_column(kernels.LONG_PREPARED_OFFSET),
}


@lru_cache(4096)
def _host_text(encoded: bytes) -> str:
    return decode_host(encoded)


def _numeric(values: npt.NDArray[Any], kind: Any) -> Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


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
