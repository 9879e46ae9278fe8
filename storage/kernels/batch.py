"""Record batches: grouped by queue, measured, and copied once into the log."""

from __future__ import annotations

from typing import Any, Final

from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from storage.format.producer_sequence import SEQUENCE_PROPERTY_SIZE
from storage.format.properties import PROPERTIES_SIZE_MAX, PROPERTY_END
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    COMMIT_OFFSET_POSITION,
    QUEUE_OFFSET_POSITION,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
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
from storage.kernels.primitives.big_endian import read_u8, write_i16, write_i32, write_i64
from storage.kernels.primitives.crc import bytes_equal, copy_bytes, masked_crc
from storage.kernels.primitives.jit import (
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
from storage.kernels.primitives.scratch import free_longs, new_longs
from storage.kernels.producer_sequences import insert_sequence
from storage.kernels.properties import write_crc_trailer

QUEUES_COLUMN_COUNT: Final = 5  # of what check_batch reports of the queues of a batch
CRC_LAG: Final = 2  # records between copying and the property CRC


@inner
def same_queue(data: Any, rows: Any, left: int, right: int) -> bool:
    """Whether two rows name the same topic and queue."""
    return (
        rows[left, QUEUE_ID] == rows[right, QUEUE_ID]
        and rows[left, TOPIC_LENGTH] == rows[right, TOPIC_LENGTH]
        and bytes_equal(
            data, rows[left, TOPIC_POSITION], data, rows[right, TOPIC_POSITION],
            rows[left, TOPIC_LENGTH],
        )
    )  # fmt: skip


@inner
def group_rows(
    data: Any, rows: Any, count: int, group_of: Any, first_row: Any, group_size: Any
) -> int:
    """Number the queues that rows ``[0, count)`` of ``data`` belong to, in order of appearance.

    ``group_of[i]`` becomes the group of row i, ``first_row[g]`` the first row of group g and
    ``group_size[g]`` its number of rows; each array must have room for ``count``. Rows must come
    from a scan of ``data``. Returns the number of groups, -1 if an array is too small.
    """
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


group_by_queue: Final = kernel(
    int64(BYTES, ROWS, int64, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S)
)(group_rows)


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
def placed_size_of(rows: Any, row: int, growth: int, store_host_size: int) -> int:
    """Bytes of a record once it is placed."""
    return i64(rows[row, SIZE] + growth + store_host_size - host_size_of(rows, row))


@inner
def copy_record(
    dst: Any, dst_position: int, src: Any, rows: Any, row: int, store_host: Any, growth: int,
    placed_size: int,
) -> None:  # fmt: skip
    """Copy one record with another store host and ``growth`` more bytes of properties.

    Lengths, host and system flag are set; the trailer that the growth is for is not.
    """
    position = rows[row, POSITION]
    size = rows[row, SIZE]
    host_size = store_host.size
    old_host_size = host_size_of(rows, row)
    host_at = rows[row, STORE_TIMESTAMP_POSITION] + 8 - position
    if host_size == old_host_size:
        copy_bytes(dst, dst_position, src, position, size)
    else:
        tail = host_at + old_host_size
        copy_bytes(dst, dst_position, src, position, host_at)
        copy_bytes(dst, dst_position + host_at + host_size, src, position + tail, size - tail)
        sys_flag = rows[row, SYS_FLAG] ^ SYS_FLAG_STORE_HOST_V6
        write_i32(dst, dst_position + SYS_FLAG_POSITION, sys_flag)
    for i in range(host_size):
        dst[uintp(dst_position + host_at + i)] = store_host[uintp(i)]
    if growth > 0:
        length = rows[row, PROPERTIES_LENGTH]
        end = dst_position + placed_size - growth
        if growth > PROPERTY_CRC_SIZE:
            dst[uintp(end)] = u8(PROPERTY_END)
        write_i16(dst, end - length - 2, length + growth)
    if placed_size != size:
        write_i32(dst, dst_position, placed_size)


@inner
def tell_placed(
    rows: Any, row: int, placed_rows: Any, dst_position: int, growth: int, host_size: int,
    queue_offset: int, commit_offset: int, store_timestamp: int, inserted: int,
) -> None:  # fmt: skip
    """Make ``placed_rows[row]`` the row of the copy, whose properties got ``inserted`` bytes before them."""
    shift = dst_position - rows[row, POSITION]
    host_shift = host_size - host_size_of(rows, row)
    for column in range(COLUMN_COUNT):
        placed_rows[row, column] = rows[row, column]
    placed_rows[row, POSITION] = dst_position
    placed_rows[row, STORE_TIMESTAMP_POSITION] += shift
    shift += host_shift
    placed_rows[row, BODY_POSITION] += shift
    placed_rows[row, TOPIC_POSITION] += shift
    placed_rows[row, PROPERTIES_POSITION] += shift
    if rows[row, UNIQ_KEY_POSITION] > 0:
        placed_rows[row, UNIQ_KEY_POSITION] += shift + inserted
    if rows[row, KEYS_POSITION] > 0:
        placed_rows[row, KEYS_POSITION] += shift + inserted
    placed_rows[row, SIZE] += growth + host_shift + inserted
    placed_rows[row, PROPERTIES_LENGTH] += inserted
    if host_shift != 0:
        placed_rows[row, SYS_FLAG] ^= SYS_FLAG_STORE_HOST_V6
    if growth > 0:
        placed_rows[row, PROPERTIES_LENGTH] += growth
        placed_rows[row, FEATURES] |= HAS_PROPERTY_CRC
    placed_rows[row, QUEUE_OFFSET] = queue_offset
    placed_rows[row, COMMIT_OFFSET] = commit_offset
    placed_rows[row, STORE_TIMESTAMP] = store_timestamp


@inner
def measure_rows(
    src: Any, rows: Any, count: int, store_host_size: int, append_property_crc: bool, sizes: Any
) -> int:
    """Bytes that :func:`place_records` will write for rows ``[0, count)`` of ``src``.

    ``sizes[i]`` becomes the stored size of record i (room for ``count`` is needed);
    ``store_host_size`` is 8 or 20. Returns the sum, or ``-1 - i`` if record i's properties have no
    room for the trailer (32,767 bytes in all), or ``-1 - count`` if an argument does not fit.
    """
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
        sizes[i] = placed_size_of(rows, i, growth, store_host_size)
        total += sizes[i]
    return total


placed_size: Final = kernel(int64(BYTES, ROWS, int64, int64, boolean, WRITABLE_INT64S))(
    measure_rows
)


@kernel(
    results(int64, 7)(
        BYTES, int64, boolean, WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S,
        WRITABLE_INT64S, WRITABLE_ROWS,
    )
)  # fmt: skip
def check_batch(
    records: Any, store_host_size: int, append_property_crc: bool, rows: Any, group_of: Any,
    first_row: Any, group_size: Any, sizes: Any, queues: Any,
) -> tuple[int, int, int, int, int, int, int]:  # fmt: skip
    """Validate, group and measure a client's batch in one call.

    The arrays are those of :func:`validate_batch`, :func:`group_by_queue` and
    :func:`placed_size`, each with room for as many records as ``rows``; ``queues`` gets a line per
    group: position and length of the topic, queue id, number of records, bytes once placed. A group with
    the topic of the group before has its position, too.

    Returns ``(count, bad_index, stop, group_count, placed_size, longest, features)``, ``longest`` being the
    most bytes of a body, ``features`` all HAS_* bits of records; the last four are 0 unless ``stop`` is END.
    """
    zero = i64(0)
    count, bad_index, stop = validate_records(records, rows)
    if stop != STOP_END:
        return count, bad_index, stop, zero, zero, zero, zero
    if queues.shape[1] != QUEUES_COLUMN_COUNT or queues.shape[0] < count:
        return zero, zero, i64(STOP_ROWS_FULL), zero, zero, zero, zero
    longest = zero
    features = zero
    for i in range(count):
        longest = max(longest, rows[i, BODY_LENGTH])
        features |= rows[i, FEATURES]
    group_count = group_rows(records, rows, count, group_of, first_row, group_size)
    for group in range(group_count):
        row = first_row[group]
        topic = rows[row, TOPIC_POSITION]
        length = rows[row, TOPIC_LENGTH]
        if group > 0 and queues[group - 1, 1] == length:
            before = queues[group - 1, 0]
            if bytes_equal(records, before, records, topic, length):
                topic = before
        queues[group, 0] = topic
        queues[group, 1] = length
        queues[group, 2] = rows[row, QUEUE_ID]
        queues[group, 3] = group_size[group]
        queues[group, 4] = 0
    size = measure_rows(records, rows, count, store_host_size, append_property_crc, sizes)
    if size >= 0:
        for i in range(count):
            queues[group_of[i], 4] += sizes[i]
    return count, bad_index, stop, group_count, size, longest, features


@kernel(
    int64(
        WRITABLE_BYTES, int64, BYTES, ROWS, int64, INT64S, WRITABLE_INT64S, int64, int64, BYTES,
        boolean, WRITABLE_ROWS, int64, int64,
    )
)  # fmt: skip
def place_records(
    dst: Any, dst_position: int, src: Any, rows: Any, count: int, group_of: Any,
    next_queue_offsets: Any, commit_offset: int, store_timestamp: int, store_host: Any,
    append_property_crc: bool, placed_rows: Any, producer_id: int, sequence: int,
) -> int:  # fmt: skip
    """Copy rows ``[0, count)`` of ``src`` to ``dst`` from ``dst_position`` on, completed.

    Each copy gets queueOffset ``next_queue_offsets[group_of[i]]`` (which is then raised by one),
    physicalOffset ``commit_offset + (its position - dst_position)``, ``store_timestamp``,
    ``store_host`` as encoded (8 or 20 bytes; the IPv6 bit and the record's length follow it), and
    a property CRC trailer if ``append_property_crc`` and it has none; a trailer's digits are
    computed last. ``placed_rows[i]`` becomes the row of the copy, positions in ``dst``; it may not
    be ``rows`` itself, and with no rows at all it is not filled. ``src`` and ``dst`` may not overlap.
    With a ``producer_id`` above 0 the first copy says that all of them are its request ``sequence``, and is
    longer by SEQUENCE_PROPERTY_SIZE.

    ``commit_offset`` is that of ``dst_position``. Returns the position after the last copy, or -1
    with nothing changed if anything would not fit (see :func:`placed_size`).
    """
    host_size = store_host.size
    if (
        count > rows.shape[0]
        or (placed_rows.shape[0] > 0 and count > placed_rows.shape[0])
        or rows.shape[1] != COLUMN_COUNT
        or placed_rows.shape[1] != COLUMN_COUNT
        or group_of.size < count
        or (host_size != IPV4_HOST_SIZE and host_size != IPV6_HOST_SIZE)
        or dst_position < 0
    ):
        return i64(-1)
    end = dst_position
    inserted = i64(SEQUENCE_PROPERTY_SIZE if producer_id > 0 else 0)  # into the first record
    for i in range(count):
        growth = trailer_growth(src, rows, i, append_property_crc)
        if i == 0:
            growth += inserted
        end += placed_size_of(rows, i, growth, host_size)
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
    position = i64(dst_position)
    crc_position = position
    # The CRC follows a few records later: loading what was stored just now would wait for the stores.
    for i in range(count + CRC_LAG):
        if i < count:
            growth = trailer_growth(src, rows, i, append_property_crc)
            size = placed_size_of(rows, i, growth, host_size)
            copy_record(dst, position, src, rows, i, store_host, growth, size)
            queue_offset = next_queue_offsets[group_of[i]]
            next_queue_offsets[group_of[i]] = queue_offset + 1
            record_offset = commit_offset + (position - dst_position)
            write_i64(dst, position + QUEUE_OFFSET_POSITION, queue_offset)
            write_i64(dst, position + COMMIT_OFFSET_POSITION, record_offset)
            timestamp_at = rows[i, STORE_TIMESTAMP_POSITION] - rows[i, POSITION]
            write_i64(dst, position + timestamp_at, store_timestamp)
            if i == 0 and inserted > 0:
                size = insert_sequence(
                    dst, position, src, rows, i, growth, size, record_offset, producer_id, sequence,
                    i64(end - dst_position),
                )  # fmt: skip
            if placed_rows.shape[0] > 0:
                tell_placed(
                    rows, i, placed_rows, position, growth, host_size, queue_offset,
                    record_offset, store_timestamp, inserted if i == 0 else i64(0),
                )  # fmt: skip
            position += size
        lagging = i - CRC_LAG
        if lagging >= 0:
            growth = trailer_growth(src, rows, lagging, append_property_crc)
            size = placed_size_of(rows, lagging, growth, host_size)
            if lagging == 0:
                size += inserted
            if growth > 0 or rows[lagging, FEATURES] & HAS_PROPERTY_CRC:
                covered = size - PROPERTY_CRC_SIZE
                crc = masked_crc(dst, crc_position, covered)
                write_crc_trailer(dst, crc_position + covered, crc)
            crc_position += size
    return i64(position)
