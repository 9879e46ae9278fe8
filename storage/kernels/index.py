"""Index files: hashing keys out of records, putting them in bulk, following chains.

The layout is in :mod:`storage.format.index`; puts are a broker's, quirks included. ``file`` is the
mapped file, ``slot_count`` and ``entry_capacity`` are its shape: it must hold
``40 + 4 * slot_count + 20 * entry_capacity`` bytes.

A put writes an entry whole, then the slot that leads to it, then the header, key by key as a broker
does, so that a killed process leaves at most one key half put. A process that reads the mapping meanwhile
may find a slot at or beyond the count in the header it has read; its entry is there.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from storage.format.index import (
    BEGIN_COMMIT_OFFSET_POSITION,
    BEGIN_TIMESTAMP_POSITION,
    COMMIT_OFFSET_IN_ENTRY,
    END_COMMIT_OFFSET_POSITION,
    END_TIMESTAMP_POSITION,
    ENTRY_SIZE,
    HEADER_SIZE,
    KEY_SEPARATOR,
    NEXT_ENTRY_POSITION,
    PREVIOUS_IN_ENTRY,
    SLOT_SIZE,
    TIME_DELTA_IN_ENTRY,
    TIME_DELTA_MAX_S,
    USED_SLOT_COUNT_POSITION,
)
from storage.format.properties import KEY_SEPARATOR as KEYS_SEPARATOR
from storage.format.record_layout import SYS_FLAG_ROLLBACK, SYS_FLAG_TRANSACTION_MASK
from storage.kernels.columns import (
    COLUMN_COUNT,
    FEATURES,
    HAS_UNIQ_KEY,
    KEYS_LENGTH,
    KEYS_POSITION,
    POSITION,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    UNIQ_KEY_LENGTH,
    UNIQ_KEY_POSITION,
)
from storage.kernels.primitives.big_endian import (
    read_i32,
    read_i64,
    read_u8,
    read_u32,
    write_i32,
    write_i64,
)
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    ROWS,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    i64,
    inner,
    int64,
    kernel,
    results,
)
from storage.kernels.primitives.prefetch import prefetch
from storage.kernels.properties import hash_step, java_hash

SEPARATOR: Final = ord(KEY_SEPARATOR)
SPACE: Final = ord(KEYS_SEPARATOR)
NO_KEY: Final = -1  # in place of a hash: a record that has no key, or none that is indexed
SLOTS_AHEAD: Final = 16  # keys by which a put is ahead of itself: most slots are in no cache
KEYS_OF_A_RECORD_MAX: Final = 16_400  # more than 32,767 bytes of properties can hold


@inner
def unsigned_to_key_hash(hashed: int) -> int:
    """The hash a key is stored under: Java's ``abs``, and 0 for -2**31."""
    signed = (hashed ^ 0x80000000) - 0x80000000
    if signed < 0:
        signed = -signed
    return i64(0) if signed > 0x7FFFFFFF else signed


@kernel(
    results(int64, 2)(
        BYTES, ROWS, int64, int64, int64, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S
    )
)
def key_hashes(
    data: Any, rows: Any, first_row: int, count: int, commit_offset_base: int, hashes: Any,
    commit_offsets: Any, store_timestamps: Any,
) -> tuple[int, int]:  # fmt: skip
    """Hash the keys of rows ``[first_row, count)``: UNIQ_KEY, then each token of KEYS, in order.

    Fills the three arrays (equally long) with one element a key; a record without one, or rolled
    back, takes one element with hash NO_KEY. ``commit_offset_base`` is the commit offset of
    ``data[0]``. Returns ``(key_count, next_row)``; it stops in front of a record whose keys may not
    fit, so arrays must hold at least KEYS_OF_A_RECORD_MAX to get on.
    """
    capacity = min(hashes.size, commit_offsets.size, store_timestamps.size)
    key_count = i64(0)
    if count > rows.shape[0] or rows.shape[1] != COLUMN_COUNT or first_row < 0:
        return key_count, first_row
    for row in range(first_row, count):
        keys_length = rows[row, KEYS_LENGTH]
        if key_count + 2 + (keys_length + 1) // 2 > capacity:
            return key_count, i64(row)
        before = key_count
        commit_offset = commit_offset_base + rows[row, POSITION]
        store_timestamp = rows[row, STORE_TIMESTAMP]
        if rows[row, SYS_FLAG] & SYS_FLAG_TRANSACTION_MASK != SYS_FLAG_ROLLBACK:
            topic = java_hash(data, rows[row, TOPIC_POSITION], rows[row, TOPIC_LENGTH], i64(0))
            topic = hash_step(topic, i64(SEPARATOR))
            if rows[row, FEATURES] & HAS_UNIQ_KEY:
                hashed = java_hash(
                    data, rows[row, UNIQ_KEY_POSITION], rows[row, UNIQ_KEY_LENGTH], topic
                )
                hashes[key_count] = unsigned_to_key_hash(hashed)
                key_count += 1
            begin = i64(rows[row, KEYS_POSITION])
            end = begin + keys_length
            while begin < end:
                at = begin
                while at < end and read_u8(data, at) != SPACE:
                    at += 1
                if at > begin:
                    hashed = java_hash(data, begin, at - begin, topic)
                    hashes[key_count] = unsigned_to_key_hash(hashed)
                    key_count += 1
                begin = at + 1
        if key_count == before:
            hashes[key_count] = NO_KEY
            key_count += 1
        for key in range(before, key_count):
            commit_offsets[key] = commit_offset
            store_timestamps[key] = store_timestamp
    return key_count, i64(count)


@inner
def shape_fits(file: Any, slot_count: int, entry_capacity: int) -> bool:
    """Whether the file is as large as its shape says."""
    return (
        slot_count > 0
        and entry_capacity > 0
        and slot_count < 1 << 40
        and entry_capacity < 1 << 31
        and HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * entry_capacity <= file.size
    )


@kernel(int64(WRITABLE_BYTES, int64, int64, INT64S, INT64S, INT64S, int64, int64))
def put_keys(
    file: Any, slot_count: int, entry_capacity: int, hashes: Any, commit_offsets: Any,
    store_timestamps: Any, start: int, count: int,
) -> int:  # fmt: skip
    """Put keys ``[start, count)`` as a broker would, until the file is full.

    Keys of records before the file's end offset are skipped, and so are those with hash NO_KEY.
    Returns the first key that is not dealt with: ``count`` if all are; a smaller number means that the
    file is full and the rest, even if they are only to be skipped, belongs to the next file.
    -1 if an argument does not fit.
    """
    if (
        not shape_fits(file, slot_count, entry_capacity)
        or start < 0
        or count > hashes.size
        or count > commit_offsets.size
        or count > store_timestamps.size
    ):
        return i64(-1)
    begin_timestamp = i64(read_i64(file, BEGIN_TIMESTAMP_POSITION))
    end_offset = i64(read_i64(file, END_COMMIT_OFFSET_POSITION))
    used_slots = i64(read_i32(file, USED_SLOT_COUNT_POSITION))
    next_entry = max(i64(read_i32(file, NEXT_ENTRY_POSITION)), i64(1))
    entries = HEADER_SIZE + SLOT_SIZE * slot_count
    key = i64(start)
    while key < count:
        if next_entry >= entry_capacity:
            break
        if key + SLOTS_AHEAD < count:
            ahead = (hashes[key + SLOTS_AHEAD] & 0x7FFFFFFF) % slot_count
            prefetch(file, HEADER_SIZE + SLOT_SIZE * ahead)
        commit_offset = commit_offsets[key]
        if hashes[key] < 0 or commit_offset < end_offset:
            key += 1
            continue
        hashed = hashes[key] & 0x7FFFFFFF
        store_timestamp = store_timestamps[key]
        slot_position = HEADER_SIZE + SLOT_SIZE * (hashed % slot_count)
        previous = i64(read_u32(file, slot_position))
        if previous > next_entry:  # or negative, as a signed number
            previous = i64(0)
        delta_s = i64(0)
        if begin_timestamp > 0 and store_timestamp > begin_timestamp:
            delta_s = min((store_timestamp - begin_timestamp) // 1000, i64(TIME_DELTA_MAX_S))
        entry_position = entries + ENTRY_SIZE * next_entry
        write_i32(file, entry_position, hashed)
        write_i64(file, entry_position + COMMIT_OFFSET_IN_ENTRY, commit_offset)
        write_i32(file, entry_position + TIME_DELTA_IN_ENTRY, delta_s)
        write_i32(file, entry_position + PREVIOUS_IN_ENTRY, previous)
        write_i32(file, slot_position, next_entry)
        if next_entry <= 1:
            begin_timestamp = store_timestamp
            write_i64(file, BEGIN_TIMESTAMP_POSITION, store_timestamp)
            write_i64(file, BEGIN_COMMIT_OFFSET_POSITION, commit_offset)
        if previous == 0:
            used_slots += 1
            write_i32(file, USED_SLOT_COUNT_POSITION, used_slots)
        next_entry += 1
        write_i32(file, NEXT_ENTRY_POSITION, next_entry)
        end_offset = commit_offset
        write_i64(file, END_COMMIT_OFFSET_POSITION, commit_offset)
        write_i64(file, END_TIMESTAMP_POSITION, store_timestamp)
        key += 1
    return key


@kernel(int64(WRITABLE_BYTES, int64, int64, int64))
def rebuild_slots(file: Any, slot_count: int, entry_capacity: int, next_entry: int) -> int:
    """Clear all slots and links and rebuild them from entries ``[1, next_entry)``.

    Entries from ``next_entry`` on are forgotten, their bytes zeroed; the header's counts follow, its
    times and offsets stay. Returns the number of slots in use, -1 if an argument does not fit.
    """
    if not shape_fits(file, slot_count, entry_capacity) or not 1 <= next_entry <= entry_capacity:
        return i64(-1)
    entries = HEADER_SIZE + SLOT_SIZE * slot_count
    file[HEADER_SIZE:entries] = 0
    # Entries were written in order, so the forgotten ones end where zeros begin.
    stale = i64(next_entry)
    while stale < entry_capacity:
        position = entries + ENTRY_SIZE * stale
        empty = True
        for i in range(ENTRY_SIZE):
            if file[position + i] != 0:
                empty = False
                file[position + i] = 0
        if empty:
            break
        stale += 1
    used_slots = i64(0)
    for entry in range(1, next_entry):
        position = entries + ENTRY_SIZE * entry
        hashed = read_i32(file, position) & 0x7FFFFFFF
        slot_position = HEADER_SIZE + SLOT_SIZE * (hashed % slot_count)
        previous = read_i32(file, slot_position)
        if previous == 0:
            used_slots += 1
        write_i32(file, position + PREVIOUS_IN_ENTRY, previous)
        write_i32(file, slot_position, entry)
    write_i32(file, USED_SLOT_COUNT_POSITION, used_slots)
    write_i32(file, NEXT_ENTRY_POSITION, next_entry)
    return used_slots


@kernel(results(int64, 2)(BYTES, int64, int64, int64, int64, int64, int64, WRITABLE_INT64S))
def walk_chain(
    file: Any, slot_count: int, entry_capacity: int, hashed: int, first_entry: int,
    begin_timestamp: int, end_timestamp: int, out_offsets: Any,
) -> tuple[int, int]:  # fmt: skip
    """Follow the chain of ``hashed`` from newest to oldest, entries of a put in progress among it.

    ``first_entry`` is where to go on, 0 to begin at the slot. An entry is taken if its record's time could lie in
    the range (the file knows whole seconds, and entry 1's time not at all).

    Fills the array with commit offsets and returns ``(found, next_entry)``; ``next_entry`` is 0 at the end of the
    chain, else where to go on.
    """
    found = i64(0)
    if not shape_fits(file, slot_count, entry_capacity) or hashed < 0:
        return found, i64(0)
    entries = HEADER_SIZE + SLOT_SIZE * slot_count
    begin = read_i64(file, BEGIN_TIMESTAMP_POSITION)
    entry = i64(first_entry)
    if entry == 0:
        entry = i64(read_i32(file, HEADER_SIZE + SLOT_SIZE * (hashed % slot_count)))
    above = i64(entry_capacity)
    while 0 < entry < above:
        if found >= out_offsets.size:
            return found, entry
        position = entries + ENTRY_SIZE * entry
        delta_s = read_i32(file, position + TIME_DELTA_IN_ENTRY)
        if delta_s < 0:
            break
        time = begin + delta_s * 1000
        if (
            read_i32(file, position) == hashed
            and time + 999 >= begin_timestamp
            and (time <= end_timestamp or entry == 1)
        ):
            out_offsets[found] = read_i64(file, position + COMMIT_OFFSET_IN_ENTRY)
            found += 1
        above = entry
        entry = i64(read_i32(file, position + PREVIOUS_IN_ENTRY))
    return found, i64(0)


WRITABLE_INT32S: Final = types.Array(types.int32, 1, "C")


@kernel(results(int64, 2)(BYTES, int64, int64, WRITABLE_INT32S, WRITABLE_INT64S))
def follow_chains(
    file: Any, slot_count: int, entry_count: int, newest: Any, bad: Any
) -> tuple[int, int]:
    """Follow entries ``[1, entry_count]``: each must lead to the one before it in its slot.

    ``newest`` (zeros, one a slot) becomes the number that each slot should have; ``bad`` the first
    entries that lead elsewhere. Returns how many do, and how many slots are in use; ``(-1, -1)`` if
    an argument does not fit.
    """
    begin = HEADER_SIZE + SLOT_SIZE * slot_count
    if (
        slot_count <= 0
        or entry_count < 0
        or newest.size < slot_count
        or begin + ENTRY_SIZE * (entry_count + 1) > file.size
    ):
        return i64(-1), i64(-1)
    wrong = i64(0)
    used = i64(0)
    for entry in range(1, entry_count + 1):
        position = begin + ENTRY_SIZE * entry
        slot = (read_i32(file, position) & 0x7FFFFFFF) % slot_count
        before = newest[slot]
        if before == 0:
            used += 1
        if read_i32(file, position + PREVIOUS_IN_ENTRY) != before:
            if wrong < bad.size:
                bad[wrong] = entry
            wrong += 1
        newest[slot] = entry
    return wrong, used
