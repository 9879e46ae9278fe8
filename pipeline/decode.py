"""Rows of a scan as Arrow arrays: one kernel call a column, none a record.

Two things are done one by one, and only where they occur: compressed bodies are decompressed, and
each distinct host becomes text once a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import columnar
from pipeline.schemas import CORRUPT
from pipeline.store_files import ByteArray
from storage.format.compression import decompress
from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE, decode_host
from storage.format.properties import RESERVED, TAGS
from storage.format.record import (
    BODY_CRC_POSITION,
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    COMMIT_OFFSET,
    FEATURES,
    HAS_KEYS,
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
)

FLAG_POSITION: Final = 16
HOSTS_MAX: Final = 256
LOG_APPEND_TIME: Final = 1  # Kafka's timestampType for a time that the store gave
TAGS_NAME: Final = np.frombuffer(TAGS.encode(), np.uint8)
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
RESERVED_NAMES: Final = pa.array(sorted(RESERVED), pa.string())

Rows = npt.NDArray[np.int64]
Longs = npt.NDArray[np.int64]
Array = Any  # pyarrow ships no types


class Batch:
    """Records of one array, some of the rows of a scan; each column is made when it is asked for."""

    def __init__(self, data: ByteArray, rows: Rows, *, decompress_bodies: bool) -> None:
        self.data = data
        self.rows = rows
        self.decompress_bodies = decompress_bodies
        self.broken: dict[int, str] = {}  # rows whose body does not decompress, and why

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> Array:
        """Return one column by the name it has in the schema."""
        if name == CORRUPT:
            return self._reasons()
        return COLUMNS[name](self)

    def _longs(self, column: int) -> Longs:
        return np.ascontiguousarray(self.rows[:, column])

    def _number(self, column: int, kind: Any) -> Array:
        return pa.array(self._longs(column).astype(kind.to_pandas_dtype(), copy=False), kind)

    def _ints_at(self, positions: Longs) -> Array:
        out = np.empty(len(positions), np.int32)
        _whole(columnar.read_i32s(self.data, positions, out))
        return pa.array(out)

    def _longs_at(self, positions: Longs) -> Longs:
        out = np.empty(len(positions), np.int64)
        _whole(columnar.read_i64s(self.data, positions, out))
        return out

    def _bytes(self, positions: Longs, lengths: Longs, kind: Any) -> Array:
        offsets = np.empty(len(positions) + 1, np.int32)
        out = np.empty(int(lengths.sum()), np.uint8)
        _whole(columnar.gather_bytes(self.data, positions, lengths, offsets, out))
        return _binary(offsets, out, kind)

    def _text(
        self, positions: Longs, lengths: Longs, absent: npt.NDArray[np.bool_] | None
    ) -> Array:
        positions, lengths = np.ascontiguousarray(positions), np.ascontiguousarray(lengths)
        size = int(_whole(columnar.text_size(self.data, positions, lengths)))
        offsets = np.empty(len(positions) + 1, np.int32)
        out = np.empty(size + 3, np.uint8)
        _whole(columnar.gather_text(self.data, positions, lengths, offsets, out))
        return _binary(offsets, out, pa.string(), absent)

    def topic(self) -> Array:
        return self._bytes(self._longs(TOPIC_POSITION), self._longs(TOPIC_LENGTH), pa.string())

    def message_id(self) -> Array:
        """The client's unique id; without one, the offset message id, as a consumer has it."""
        unique = (self.rows[:, FEATURES] & HAS_UNIQ_KEY) != 0
        ids = self._property_text(UNIQ_KEY_POSITION, UNIQ_KEY_LENGTH, HAS_UNIQ_KEY)
        return ids if unique.all() else pc.coalesce(ids, self.offset_message_id())

    def offset_message_id(self) -> Array:
        positions, lengths = self._store_hosts()
        offsets = np.empty(len(self.rows) + 1, np.int32)
        out = np.empty(len(self.rows) * 56, np.uint8)
        commit_offsets = self._longs(COMMIT_OFFSET)
        _whole(columnar.message_ids(self.data, positions, lengths, commit_offsets, offsets, out))
        return _binary(offsets, out, pa.string())

    def _property_text(self, position: int, length: int, feature: int) -> Array:
        absent = (self.rows[:, FEATURES] & feature) == 0
        positions = np.where(absent, columnar.NONE, self.rows[:, position])
        return self._text(positions, self.rows[:, length], absent)

    def tags(self) -> Array:
        positions, lengths = np.empty((2, len(self.rows)), np.int64)
        _whole(
            columnar.find_property(
                self.data, self._longs(PROPERTIES_POSITION), self._longs(PROPERTIES_LENGTH),
                TAGS_NAME, positions, lengths,
            )
        )  # fmt: skip
        return self._text(positions, lengths, positions == columnar.NONE)

    def keys(self) -> Array:
        return self._property_text(KEYS_POSITION, KEYS_LENGTH, HAS_KEYS)

    def body(self) -> Array:
        stored = self._bytes(self._longs(BODY_POSITION), self._longs(BODY_LENGTH), pa.binary())
        packed = (self.rows[:, SYS_FLAG] & SYS_FLAG_COMPRESSED) != 0
        if not self.decompress_bodies or not packed.any():
            return stored
        bodies: list[bytes | None] = []
        for row in np.flatnonzero(packed).tolist():
            try:
                bodies.append(decompress(stored[row].as_py(), int(self.rows[row, SYS_FLAG])))
            except ValueError as error:
                self.broken[row] = str(error)
                bodies.append(None)
        return pc.replace_with_mask(stored, pa.array(packed), pa.array(bodies, pa.binary()))

    def _reasons(self) -> Array:
        if not self.broken:
            return pa.nulls(len(self.rows), pa.string())
        return pa.array([self.broken.get(row) for row in range(len(self.rows))], pa.string())

    def _pairs(self) -> tuple[npt.NDArray[np.int32], Array, tuple[Longs, Longs]]:
        lengths = self._longs(PROPERTIES_LENGTH)
        capacity = int(lengths.sum()) // 4 + len(lengths) + 1
        pair_offsets = np.empty(len(lengths) + 1, np.int32)
        names, name_lengths, values, value_lengths = np.empty((4, capacity), np.int64)
        count = _whole(
            columnar.split_properties(
                self.data, self._longs(PROPERTIES_POSITION), lengths, pair_offsets,
                names, name_lengths, values, value_lengths,
            )
        )  # fmt: skip
        keys = self._text(names[:count], name_lengths[:count], None)
        return pair_offsets, keys, (values[:count], value_lengths[:count])

    def properties(self) -> Array:
        offsets, keys, (values, lengths) = self._pairs()
        return pa.MapArray.from_arrays(pa.array(offsets), keys, self._text(values, lengths, None))

    def headers(self) -> Array:
        """The user's own properties as Kafka has headers; null without any."""
        offsets, keys, (values, lengths) = self._pairs()
        mine = pc.invert(pc.is_in(keys, RESERVED_NAMES))
        kept = mine.to_numpy(zero_copy_only=False)
        before = np.concatenate(([0], np.cumsum(kept))).astype(np.int32)
        pairs = pa.StructArray.from_arrays(
            [
                keys.filter(mine),
                self._bytes(values[kept], lengths[kept], pa.binary()),
            ],
            fields=[pa.field("key", pa.string()), pa.field("value", pa.binary())],
        )
        bounds = before[offsets]
        return pa.ListArray.from_arrays(
            pa.array(bounds), pairs, mask=pa.array(bounds[1:] == bounds[:-1])
        )

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
        distinct = int(columnar.number_hosts(self.data, positions, lengths, numbers, firsts))
        if distinct < 0:
            if len(positions) <= HOSTS_MAX:
                raise ValueError("a host is not inside the array that was scanned")
            half = len(positions) // 2
            return pa.concat_arrays(
                [self.hosts(positions[:half], lengths[:half]),
                 self.hosts(positions[half:], lengths[half:])]
            )  # fmt: skip
        texts = [
            decode_host(self.data[positions[row] : positions[row] + lengths[row]].tobytes())
            for row in firsts[:distinct].tolist()
        ]
        return pa.array(texts, pa.string()).take(pa.array(numbers))

    def after_store_host(self) -> Longs:
        positions, lengths = self._store_hosts()
        return positions + lengths

    def born_timestamp(self) -> Array:
        return _timestamps(self._longs_at(self._longs(POSITION) + BORN_TIMESTAMP_POSITION))

    def store_timestamp(self) -> Array:
        return _timestamps(self._longs(STORE_TIMESTAMP))

    def key(self) -> Array:
        return self.keys().cast(pa.binary())


COLUMNS: Final[dict[str, Callable[[Batch], Array]]] = {
    "topic": Batch.topic,
    "queueId": lambda batch: batch._number(QUEUE_ID, pa.int32()),
    "queueOffset": lambda batch: batch._number(QUEUE_OFFSET, pa.int64()),
    "physicalOffset": lambda batch: batch._number(COMMIT_OFFSET, pa.int64()),
    "size": lambda batch: batch._number(SIZE, pa.int32()),
    "msgId": Batch.message_id,
    "tags": Batch.tags,
    "keys": Batch.keys,
    "body": Batch.body,
    "properties": Batch.properties,
    "headers": Batch.headers,
    "bornTimestamp": Batch.born_timestamp,
    "storeTimestamp": Batch.store_timestamp,
    "bornHost": lambda batch: batch.hosts(*batch._born_hosts()),
    "storeHost": lambda batch: batch.hosts(*batch._store_hosts()),
    "sysFlag": lambda batch: batch._number(SYS_FLAG, pa.int32()),
    "flag": lambda batch: batch._ints_at(batch._longs(POSITION) + FLAG_POSITION),
    "bodyCrc": lambda batch: batch._ints_at(batch._longs(POSITION) + BODY_CRC_POSITION),
    "reconsumeTimes": lambda batch: batch._ints_at(batch.after_store_host()),
    "preparedTransactionOffset": lambda batch: pa.array(
        batch._longs_at(batch.after_store_host() + 4)
    ),
    "key": Batch.key,
    "value": Batch.body,
    "partition": lambda batch: batch._number(QUEUE_ID, pa.int32()),
    "offset": lambda batch: batch._number(QUEUE_OFFSET, pa.int64()),
    "timestamp": Batch.store_timestamp,
    "timestampType": lambda batch: pa.array(np.full(len(batch), LOG_APPEND_TIME, np.int32)),
}
BODY_COLUMNS: Final = frozenset(("body", "value"))


def body_first(names: Sequence[str]) -> list[str]:
    """Return the columns in an order in which the reason for a missing body is known when asked."""
    return sorted(names, key=lambda name: name == CORRUPT)


def _timestamps(milliseconds: Longs) -> Array:
    return pa.array(milliseconds * 1000, TIMESTAMP)


def _whole(result: int) -> int:
    if result < 0:
        raise ValueError("a range of the scan is not inside the array that was scanned")
    return result


def _binary(
    offsets: npt.NDArray[np.int32],
    values: ByteArray,
    kind: Any,
    absent: npt.NDArray[np.bool_] | None = None,
) -> Array:
    validity = None
    nulls = 0
    if absent is not None and absent.any():
        nulls = int(absent.sum())
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, nulls)
