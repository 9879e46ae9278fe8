"""Index kernels against the plain layouts of storage.format, and chains against a model."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_records import encode_record
from record_examples import as_array, logs

from storage.format.index import ENTRY, IndexHeader, entry_position, file_size, key_hash
from storage.format.properties import decode_properties, split_keys
from storage.format.record import decode_record
from storage.format.record_layout import SYS_FLAG_ROLLBACK
from storage.kernels import index as index_kernels
from storage.kernels import scan
from storage.kernels.columns import new_rows


def hash_all(data: bytes, capacity: int = 40_000) -> list[tuple[int, int, int]]:
    """(hash, commit offset, store timestamp) of every key in ``data``, which begins at 0."""
    array = as_array(data)
    rows = new_rows(64)
    count, _, _ = scan.scan_records(array, 0, len(data), 0, 0, rows)
    out = [np.zeros(capacity, np.int64) for _ in range(3)]
    found, next_row = index_kernels.key_hashes(array, rows, 0, count, 0, *out)
    assert next_row == count
    return list(zip(*(column[:found].tolist() for column in out), strict=True))


@given(logs(0, 5))
@settings(max_examples=150, deadline=None)
def test_keys_are_the_unique_one_and_each_token_in_order(data: bytes) -> None:
    expected = []
    at = 0
    for _ in range(5):
        try:
            record = decode_record(data, at)
        except ValueError:
            break
        properties = decode_properties(record.properties_block)
        keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
        keys += split_keys(properties.get("KEYS", ""))
        if record.transaction == SYS_FLAG_ROLLBACK:
            keys = []
        hashes = [key_hash(record.topic, key) for key in keys] or [index_kernels.NO_KEY]
        expected += [(hashed, at, record.store_timestamp_ms) for hashed in hashes]
        at += record.total_size

    assert hash_all(data) == expected


def test_the_one_overflow_of_abs_is_hash_0() -> None:
    data = encode_record(
        topic="poly", queue_id=0, body=b"", properties_block=b"KEYS\x01a\x02", store_timestamp_ms=1
    )
    assert hash_all(data)[0][0] == key_hash("poly", "a")
    assert index_kernels.unsigned_to_key_hash(1 << 31) == 0
    assert index_kernels.unsigned_to_key_hash((1 << 32) - 5) == 5


def test_no_record_has_more_keys_than_the_arrays_must_hold() -> None:
    block = b"KEYS\x01" + b"a " * 16_380 + b"\x02"
    data = encode_record(topic="t", queue_id=0, body=b"", properties_block=block)

    assert len(hash_all(data, index_kernels.KEYS_OF_A_RECORD_MAX)) == 16_380


class Model:
    """A plain index file: a dictionary of slots and a list of entries."""

    def __init__(self, slot_count: int, entry_count: int) -> None:
        self.slot_count, self.entry_count = slot_count, entry_count
        self.slots: dict[int, int] = defaultdict(int)
        self.entries: list[tuple[int, ...]] = []
        self.header = IndexHeader()

    def put(self, hashed: int, commit_offset: int, timestamp: int) -> bool:
        header = self.header
        number = header.next_entry
        if number >= self.entry_count:
            return False
        if hashed < 0 or commit_offset < header.end_commit_offset:
            return True
        begin = header.begin_timestamp_ms
        delta = max(0, timestamp - begin) // 1000 if begin > 0 else 0
        slot = hashed % self.slot_count
        self.entries.append((hashed, commit_offset, min(delta, 0x7FFFFFFF), self.slots[slot]))
        first = number == 1
        self.header = IndexHeader(
            timestamp if first else begin, timestamp,
            commit_offset if first else header.begin_commit_offset, commit_offset,
            header.used_slot_count + (self.slots[slot] == 0), number + 1,
        )  # fmt: skip
        self.slots[slot] = number
        return True

    def encode(self) -> bytes:
        slots = b"".join(self.slots[slot].to_bytes(4, "big") for slot in range(self.slot_count))
        entries = bytes(20) + b"".join(ENTRY.pack(*entry) for entry in self.entries)
        header = self.header.encode() if self.entries else bytes(40)
        return (header + slots + entries).ljust(file_size(self.slot_count, self.entry_count), b"\0")


def put_all(file: np.ndarray, shape: tuple[int, int], keys: list[tuple[int, int, int]]) -> int:
    arrays = [np.array([key[i] for key in keys], np.int64) for i in range(3)]
    return int(index_kernels.put_keys(file, *shape, *arrays, 0, len(keys)))


KEYS = st.lists(
    st.tuples(st.integers(-1, 12), st.integers(0, 30), st.integers(0, 1 << 45)), max_size=25
)


@given(KEYS, KEYS)
@settings(max_examples=200, deadline=None)
def test_puts_in_batches_are_puts_one_by_one(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]
) -> None:
    shape = (5, 20)
    file = np.zeros(file_size(*shape), np.uint8)
    model = Model(*shape)
    for keys in (first, second):
        keys = [(hashed, (n << 5) + offset, time) for n, (hashed, offset, time) in enumerate(keys)]
        accepted = put_all(file, shape, keys)
        assert [model.put(*key) for key in keys[: accepted + 1]] == [True] * accepted + [False] * (
            accepted < len(keys)
        )

        assert file.tobytes() == model.encode()


def filled(shape: tuple[int, int], count: int) -> tuple[np.ndarray, dict[int, list[int]]]:
    """A file with ``count`` keys and, by hash, the commit offsets, newest first."""
    rng = random.Random(3)
    keys = [(rng.randrange(1 << 31) % 997, 100 * n, 1_000_000 + 250 * n) for n in range(count)]
    file = np.zeros(file_size(*shape), np.uint8)
    assert put_all(file, shape, keys) == count
    places: dict[int, list[int]] = defaultdict(list)
    for hashed, offset, _ in reversed(keys):
        places[hashed].append(offset)
    return file, places


def walk(
    file: np.ndarray, shape: tuple[int, int], hashed: int, window: tuple[int, int] = (0, 1 << 60)
) -> list[int]:
    offsets = np.zeros(50_000, np.int64)
    found, _ = index_kernels.walk_chain(file, *shape, hashed, 0, *window, offsets)
    return offsets[:found].tolist()


def test_every_key_of_a_large_file_is_found_newest_first() -> None:
    shape = (300, 50_001)
    file, places = filled(shape, 50_000)

    for hashed in range(997):
        assert walk(file, shape, hashed) == places[hashed]


def test_entries_are_taken_whose_second_could_be_of_the_times() -> None:
    shape = (1, 10)
    file = np.zeros(file_size(*shape), np.uint8)
    put_all(file, shape, [(7, 100 * n, 10_000 + 1_000 * n) for n in range(9)])

    assert walk(file, shape, 7, window=(13_500, 15_500)) == [500, 400, 300]


def test_rebuilding_slots_restores_a_file_to_a_smaller_count() -> None:
    shape = (13, 200)
    wanted, _ = filled(shape, 120)
    file, _ = filled(shape, 180)
    header = wanted[:40].copy()
    file[:40] = header
    file[40 : 40 + 4 * 13] = 0xFF
    file[entry_position(13, 1) + 16] ^= 0x55

    used = index_kernels.rebuild_slots(file, *shape, 121)

    assert used == IndexHeader.decode(header.tobytes()).used_slot_count
    assert (file == wanted).all()
