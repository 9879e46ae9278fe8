"""Record batches: grouped by queue, measured, and copied once into the log."""

from __future__ import annotations

from typing import Any, Final

from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from storage.format.properties import (
    PROPERTIES_SIZE_MAX,
    PROPERTY_END,
)
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    COMMIT_OFFSET_POSITION,
    QUEUE_OFFSET_POSITION,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels.big_endian import (
    read_u8,
    write_i16,
    write_i32,
    write_i64,
)
from storage.kernels.client_records import validate_records
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    COLUMN_COUNT,
    COMMIT_OFFSET,
    FEATURES,
    HAS_PROPERTY_CRC,
    KEYS_POSITION,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE,
    STOP_END,
    STOP_ROWS_FULL,
    STORE_TIMESTAMP,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    UNIQ_KEY_POSITION,
)
from storage.kernels.crc import bytes_equal, copy_bytes, masked_crc
from storage.kernels.jit import (
    BYTES,
    INT64S,
    ROWS,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    boolean,
    i64,
    inner,
    int64,
    kernel,
    results,
    u8,
    uintp,
)
from storage.kernels.properties import (
    write_crc_trailer,
)
from storage.kernels.scratch import free_longs, new_longs

QUEUES_COLUMN_COUNT: Final = 4  # of what check_batch tells about the queues of a batch


@inner
def same_queue(data: Any, rows: Any, left: int, right: int) -> bool:
    """Whether two rows name the same topic and queue."""
    return (
        rows[left, QUEUE_ID] == rows[right, QUEUE_ID]
        and rows[left, TOPIC_LENGTH] == rows[right, TOPIC_LENGTH]
        and bytes_equal(
            data,
            rows[left, TOPIC_POSITION],
            data,
            rows[right, TOPIC_POSITION],
            rows[left, TOPIC_LENGTH],
        )
    )


@inner
def group_rows(
    data: Any, rows: Any, count: int, group_of: Any, first_row: Any, group_size: Any
) -> int:
    """What :func:`group_by_queue` does, for kernels."""
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or group_of.size < count
        or first_row.size < count
        or group_size.size < count
    ):
        return i64(-1)
    bucket_count = i64(16)
    while bucket_count < 2 * count:
        bucket_count *= 2
    buckets = new_longs(bucket_count)
    for bucket in range(bucket_count):
        buckets[bucket] = -1
    group_count = i64(0)
    for i in range(count):
        if i > 0 and same_queue(data, rows, i - 1, i):
            group = group_of[i - 1]
            group_of[i] = group
            group_size[group] += 1
            continue
        hashed = rows[i, QUEUE_ID] & 0xFFFFFFFF
        for j in range(rows[i, TOPIC_LENGTH]):
            hashed = (hashed * 31 + read_u8(data, rows[i, TOPIC_POSITION] + j)) & 0xFFFFFFFF
        bucket = (hashed ^ (hashed >> 15)) & (bucket_count - 1)
        while buckets[bucket] >= 0 and not same_queue(data, rows, first_row[buckets[bucket]], i):
            bucket = (bucket + 1) & (bucket_count - 1)
        if buckets[bucket] < 0:
            buckets[bucket] = group_count
            first_row[group_count] = i
            group_size[group_count] = 0
            group_count += 1
        group_of[i] = buckets[bucket]
        group_size[buckets[bucket]] += 1
    free_longs(buckets)
    return group_count


@kernel(int64(BYTES, ROWS, int64, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S))
def group_by_queue(
    data: Any, rows: Any, count: int, group_of: Any, first_row: Any, group_size: Any
) -> int:
    """Number the queues that rows ``[0, count)`` of ``data`` belong to, in order of appearance.

    ``group_of[i]`` becomes the group of row i, ``first_row[g]`` the first row of group g and
    ``group_size[g]`` its number of rows; each array must have room for ``count``. Rows must come
    from a scan of ``data``. Returns the number of groups, -1 if an array is too small.
    """
    return group_rows(data, rows, count, group_of, first_row, group_size)


@inner
def trailer_growth(data: Any, rows: Any, row: int, append_property_crc: bool) -> int:
    """Bytes by which a record's properties grow for a property CRC trailer."""
    if not append_property_crc or rows[row, FEATURES] & HAS_PROPERTY_CRC:
        return i64(0)
    length = rows[row, PROPERTIES_LENGTH]
    if length > 0 and read_u8(data, rows[row, PROPERTIES_POSITION] + length - 1) != PROPERTY_END:
        return i64(PROPERTY_CRC_SIZE + 1)
    return i64(PROPERTY_CRC_SIZE)


@inner
def host_size_of(rows: Any, row: int) -> int:
    """Bytes of the record's own store host."""
    if rows[row, SYS_FLAG] & SYS_FLAG_STORE_HOST_V6:
        return i64(IPV6_HOST_SIZE)
    return i64(IPV4_HOST_SIZE)


@inner
def measure_rows(
    src: Any, rows: Any, count: int, store_host_size: int, append_property_crc: bool, sizes: Any
) -> int:
    """What :func:`placed_size` does, for kernels."""
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or sizes.size < count
        or (store_host_size != IPV4_HOST_SIZE and store_host_size != IPV6_HOST_SIZE)
    ):
        return i64(-1 - count)
    total = i64(0)
    for i in range(count):
        growth = trailer_growth(src, rows, i, append_property_crc)
        if rows[i, PROPERTIES_LENGTH] + growth > PROPERTIES_SIZE_MAX:
            return i64(-1 - i)
        sizes[i] = rows[i, SIZE] + growth + store_host_size - host_size_of(rows, i)
        total += sizes[i]
    return total


@kernel(int64(BYTES, ROWS, int64, int64, boolean, WRITABLE_INT64S))
def placed_size(
    src: Any, rows: Any, count: int, store_host_size: int, append_property_crc: bool, sizes: Any
) -> int:
    """Bytes that :func:`place_records` will write for rows ``[0, count)`` of ``src``.

    ``sizes[i]`` becomes the stored size of record i (room for ``count`` is needed);
    ``store_host_size`` is 8 or 20. Returns the sum, or ``-1 - i`` if record i's properties have no
    room for the trailer (32,767 bytes in all), or ``-1 - count`` if an argument does not fit.
    """
    return measure_rows(src, rows, count, store_host_size, append_property_crc, sizes)


@inner
def check_rows(
    records: Any, store_host_size: int, append_property_crc: bool, rows: Any, group_of: Any,
    first_row: Any, group_size: Any, sizes: Any, queues: Any,
) -> tuple[int, int, int, int, int, int]:  # fmt: skip
    """What :func:`check_batch` does, for kernels."""
    zero = i64(0)
    count, bad_index, stop = validate_records(records, rows)
    if stop != STOP_END:
        return count, bad_index, stop, zero, zero, zero
    if queues.shape[1] != QUEUES_COLUMN_COUNT or queues.shape[0] < count:
        return zero, zero, i64(STOP_ROWS_FULL), zero, zero, zero
    longest = zero
    for i in range(count):
        longest = max(longest, rows[i, BODY_LENGTH])
    group_count = group_rows(records, rows, count, group_of, first_row, group_size)
    for group in range(group_count):
        row = first_row[group]
        queues[group, 0] = rows[row, TOPIC_POSITION]
        queues[group, 1] = rows[row, TOPIC_LENGTH]
        queues[group, 2] = rows[row, QUEUE_ID]
        queues[group, 3] = group_size[group]
    size = measure_rows(records, rows, count, store_host_size, append_property_crc, sizes)
    return count, bad_index, stop, group_count, size, longest


@kernel(
    results(int64, 6)(
        BYTES, int64, boolean, WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S,
        WRITABLE_INT64S, WRITABLE_ROWS,
    )
)  # fmt: skip
def check_batch(
    records: Any, store_host_size: int, append_property_crc: bool, rows: Any, group_of: Any,
    first_row: Any, group_size: Any, sizes: Any, queues: Any,
) -> tuple[int, int, int, int, int, int]:  # fmt: skip
    """Validate, group and measure a client's batch in one call.

    The arrays are those of :func:`validate_batch`, :func:`group_by_queue` and
    :func:`placed_size`, each with room for as many records as ``rows``; ``queues`` gets a line per
    group: position and length of the topic, queue id, number of records.

    Returns ``(count, bad_index, stop, group_count, placed_size, longest)``, ``longest`` being the
    most bytes of a body; the last three are 0 unless ``stop`` is END.
    """
    return check_rows(
        records, store_host_size, append_property_crc, rows, group_of, first_row, group_size,
        sizes, queues,
    )  # fmt: skip


@kernel(
    results(int64, 6)(
        BYTES, int64, boolean, WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S,
        WRITABLE_INT64S, WRITABLE_ROWS,
    ),
    nogil=False,
)  # fmt: skip
def check_few(
    records: Any, store_host_size: int, append_property_crc: bool, rows: Any, group_of: Any,
    first_row: Any, group_size: Any, sizes: Any, queues: Any,
) -> tuple[int, int, int, int, int, int]:  # fmt: skip
    """What :func:`check_batch` does, holding the interpreter lock: for small batches."""
    return check_rows(
        records, store_host_size, append_property_crc, rows, group_of, first_row, group_size,
        sizes, queues,
    )  # fmt: skip


@inner
def place_record(
    dst: Any, dst_position: int, src: Any, rows: Any, row: int, store_host: Any, growth: int,
    placed_rows: Any,
) -> int:  # fmt: skip
    """Copy one record with another store host and a longer property block; return its size.

    ``placed_rows[row]`` becomes the row of the copy, but for the fields that are set afterwards.
    """
    position = rows[row, POSITION]
    size = rows[row, SIZE]
    old_host_size = host_size_of(rows, row)
    host_shift = store_host.size - old_host_size
    placed_size = i64(size + growth + host_shift)
    host_position = rows[row, STORE_TIMESTAMP_POSITION] + 8
    if host_shift == 0:
        copy_bytes(dst, dst_position, src, position, size)
        placed_host = dst_position + (host_position - position)
    else:
        head = host_position - position
        copy_bytes(dst, dst_position, src, position, head)
        placed_host = dst_position + head
        tail = host_position + old_host_size
        copy_bytes(dst, placed_host + store_host.size, src, tail, position + size - tail)
    copy_bytes(dst, placed_host, store_host, i64(0), store_host.size)

    shift = dst_position - position
    for column in range(COLUMN_COUNT):
        placed_rows[row, column] = rows[row, column]
    placed_rows[row, POSITION] = dst_position
    placed_rows[row, STORE_TIMESTAMP_POSITION] += shift
    shift += host_shift
    placed_rows[row, BODY_POSITION] += shift
    placed_rows[row, TOPIC_POSITION] += shift
    placed_rows[row, PROPERTIES_POSITION] += shift
    if rows[row, UNIQ_KEY_POSITION] > 0:
        placed_rows[row, UNIQ_KEY_POSITION] += shift
    if rows[row, KEYS_POSITION] > 0:
        placed_rows[row, KEYS_POSITION] += shift
    placed_rows[row, SIZE] = placed_size

    if host_shift != 0:
        sys_flag = rows[row, SYS_FLAG] ^ SYS_FLAG_STORE_HOST_V6
        placed_rows[row, SYS_FLAG] = sys_flag
        write_i32(dst, dst_position + SYS_FLAG_POSITION, sys_flag)
    if growth > 0:
        properties_length = rows[row, PROPERTIES_LENGTH]
        properties_position = placed_rows[row, PROPERTIES_POSITION]
        if growth > PROPERTY_CRC_SIZE:
            dst[uintp(properties_position + properties_length)] = u8(PROPERTY_END)
        write_i16(dst, properties_position - 2, properties_length + growth)
        placed_rows[row, PROPERTIES_LENGTH] = properties_length + growth
        placed_rows[row, FEATURES] |= HAS_PROPERTY_CRC
    if growth > 0 or host_shift != 0:
        write_i32(dst, dst_position, placed_size)
    return placed_size


@inner
def place_rows(
    dst: Any, dst_position: int, src: Any, rows: Any, count: int, group_of: Any,
    next_queue_offsets: Any, commit_offset: int, store_timestamp: int, store_host: Any,
    append_property_crc: bool, placed_rows: Any,
) -> int:  # fmt: skip
    """What :func:`place_records` does, for kernels."""
    host_size = store_host.size
    if (
        count > rows.shape[0]
        or count > placed_rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or placed_rows.shape[1] != COLUMN_COUNT
        or group_of.size < count
        or (host_size != IPV4_HOST_SIZE and host_size != IPV6_HOST_SIZE)
        or dst_position < 0
    ):
        return i64(-1)
    end = dst_position
    for i in range(count):
        growth = trailer_growth(src, rows, i, append_property_crc)
        end += rows[i, SIZE] + growth + host_size - host_size_of(rows, i)
        if (
            rows[i, PROPERTIES_LENGTH] + growth > PROPERTIES_SIZE_MAX
            or group_of[i] < 0
            or group_of[i] >= next_queue_offsets.size
            or rows[i, POSITION] < 0
            or rows[i, POSITION] + rows[i, SIZE] > src.size
        ):
            return i64(-1)
    if end > dst.size:
        return i64(-1)
    position = dst_position
    for i in range(count):
        growth = trailer_growth(src, rows, i, append_property_crc)
        size = place_record(dst, position, src, rows, i, store_host, growth, placed_rows)
        queue_offset = next_queue_offsets[group_of[i]]
        next_queue_offsets[group_of[i]] = queue_offset + 1
        record_offset = commit_offset + (position - dst_position)
        write_i64(dst, position + QUEUE_OFFSET_POSITION, queue_offset)
        write_i64(dst, position + COMMIT_OFFSET_POSITION, record_offset)
        write_i64(dst, placed_rows[i, STORE_TIMESTAMP_POSITION], store_timestamp)
        placed_rows[i, QUEUE_OFFSET] = queue_offset
        placed_rows[i, COMMIT_OFFSET] = record_offset
        placed_rows[i, STORE_TIMESTAMP] = store_timestamp
        position += size
    # In a loop of its own: a CRC that loads what was stored just now waits for every store.
    for i in range(count):
        if placed_rows[i, FEATURES] & HAS_PROPERTY_CRC:
            covered = placed_rows[i, SIZE] - PROPERTY_CRC_SIZE
            record = placed_rows[i, POSITION]
            write_crc_trailer(dst, record + covered, masked_crc(dst, record, covered))
    return i64(position)


@kernel(
    int64(
        WRITABLE_BYTES, int64, BYTES, ROWS, int64, INT64S, WRITABLE_INT64S, int64, int64, BYTES,
        boolean, WRITABLE_ROWS,
    )
)  # fmt: skip
def place_records(
    dst: Any, dst_position: int, src: Any, rows: Any, count: int, group_of: Any,
    next_queue_offsets: Any, commit_offset: int, store_timestamp: int, store_host: Any,
    append_property_crc: bool, placed_rows: Any,
) -> int:  # fmt: skip
    """Copy rows ``[0, count)`` of ``src`` to ``dst`` from ``dst_position`` on, completed.

    Each copy gets queueOffset ``next_queue_offsets[group_of[i]]`` (which is then raised by one),
    physicalOffset ``commit_offset + (its position - dst_position)``, ``store_timestamp``,
    ``store_host`` as encoded (8 or 20 bytes; the IPv6 bit and the record's length follow it), and
    a property CRC trailer if ``append_property_crc`` and it has none; a trailer's digits are
    computed last. ``placed_rows[i]`` becomes the row of the copy, positions in ``dst``; it may not
    be ``rows`` itself. ``src`` and ``dst`` may not overlap.

    ``commit_offset`` is that of ``dst_position``. Returns the position behind the last copy, or -1
    with nothing changed if anything would not fit (see :func:`placed_size`).
    """
    return place_rows(
        dst, dst_position, src, rows, count, group_of, next_queue_offsets, commit_offset,
        store_timestamp, store_host, append_property_crc, placed_rows,
    )  # fmt: skip


@kernel(
    int64(
        WRITABLE_BYTES, int64, BYTES, ROWS, int64, INT64S, WRITABLE_INT64S, int64, int64, BYTES,
        boolean, WRITABLE_ROWS,
    ),
    nogil=False,
)  # fmt: skip
def place_few(
    dst: Any, dst_position: int, src: Any, rows: Any, count: int, group_of: Any,
    next_queue_offsets: Any, commit_offset: int, store_timestamp: int, store_host: Any,
    append_property_crc: bool, placed_rows: Any,
) -> int:  # fmt: skip
    """What :func:`place_records` does, holding the interpreter lock: for small batches."""
    return place_rows(
        dst, dst_position, src, rows, count, group_of, next_queue_offsets, commit_offset,
        store_timestamp, store_host, append_property_crc, placed_rows,
    )  # fmt: skip
