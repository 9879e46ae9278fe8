"""Client batches: what is refused and why, and what placing makes of a good one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_records import check_record
from record_examples import as_array, client_batches

from storage.format.consume_entry import LAYOUT
from storage.format.hosts import encode_host
from storage.format.properties import DELAYING, STORE_ONLY
from storage.format.record import decode_record, encode_for_batch
from storage.kernels import batch, client_records, columns, queue, scan
from storage.kernels.columns import Stop, new_rows

COMMIT_OFFSET = 1 << 34


def client_record(
    topic: str = "orders",
    body: bytes = b"body",
    block: bytes = b"TAGS\x01a\x02",
    queue_id: int = 2,
    sys_flag: int = 0,
    reserve: bool = True,
) -> bytes:
    """A record as a client encodes it."""
    return encode_for_batch(
        topic, queue_id, body, block, 5, sys_flag, 1_700_000_000_000, "10.0.0.9:77", reserve
    )


def patched(record: bytes, position: int, data: bytes) -> bytes:
    return record[:position] + data + record[position + len(data) :]


def verdict(record: bytes) -> Stop:
    """Stop of a batch whose second record is ``record``; the first one is good."""
    good = client_record()
    rows = new_rows(8)
    count, bad_index, stop = client_records.validate_batch(as_array(good + record), rows)
    assert (count, bad_index) == ((2, -1) if stop == Stop.END else (1, 1))
    return Stop(stop)


@pytest.mark.parametrize(
    ("record", "stop"),
    [
        (client_record(), Stop.END),
        (client_record(body=b"", block=b""), Stop.END),
        (client_record(reserve=False), Stop.END),
        (client_record(block=b"TAGS\x01a"), Stop.END),
        (client_record(block=b"DELAY\x010\x02"), Stop.END),
        (client_record(sys_flag=0x301), Stop.END),
        (client_record(topic="%RETRY%" + "g" * 150), Stop.END),
        (client_record(block="k\x01日本😀\x02".encode()), Stop.END),
        (patched(client_record(), 4, b"\xda\xa3\x20\xab"), Stop.LENGTHS),
        (patched(client_record(), 4, b"\xcb\xd4\x31\x94"), Stop.BLANK),
        (patched(client_record(), 0, bytes(8)), Stop.ZERO),
        (patched(client_record(), 4, b"\0\0\0\1"), Stop.MAGIC),
        (client_record()[:-1], Stop.TRUNCATED),
        (patched(client_record(), 0, b"\0\0\0\x10"), Stop.SIZE),
        (patched(client_record(), 88, b"B"), Stop.BODY_CRC),
        (patched(client_record(body=b""), 8, b"\0\0\0\1"), Stop.BODY_CRC),
        (client_record(topic="a b"), Stop.TOPIC),
        (client_record(topic="a.b"), Stop.TOPIC),
        (client_record(topic=""), Stop.TOPIC),
        (client_record(queue_id=-1), Stop.QUEUE),
        (client_record(sys_flag=0x4), Stop.SYS_FLAG),
        (client_record(sys_flag=0x8), Stop.SYS_FLAG),
        (client_record(sys_flag=0x40), Stop.SYS_FLAG),
        (client_record(sys_flag=0x80), Stop.SYS_FLAG),
        (client_record(sys_flag=0x400), Stop.SYS_FLAG),
        (client_record(sys_flag=0x800), Stop.SYS_FLAG),
        (client_record(block=b"DELAY\x01x\x02"), Stop.DELAY),
        (client_record(block=b"TIMER_DELAY_SEC\x01-1\x02"), Stop.DELAY),
        (client_record(block=b"TIMER_DELIVER_MS\x011234567890123456\x02"), Stop.DELAY),
        (client_record(block=b"TAGS\x01a|b\x02"), Stop.TAG),
        (client_record(block=b"__RMQ.TRANSIENT.x\x01y\x02"), Stop.RESERVED_PROPERTY),
        (client_record(block=b"__CRC32#\x01123\x02k\x01v\x02"), Stop.RESERVED_PROPERTY),
        (client_record(block=b"k\x02"), Stop.PROPERTIES),
        (client_record(block=b"\x01v\x02"), Stop.PROPERTIES),
        (client_record(block=b"k\x01\x02"), Stop.PROPERTIES),
        (client_record(block=b"\x02k\x01v\x02"), Stop.PROPERTIES),
        (client_record(block=b"k\x01\xff\x02"), Stop.PROPERTIES),
    ],
)
def test_a_bad_record_is_named_with_its_index_and_reason(record: bytes, stop: Stop) -> None:
    assert verdict(record) is stop


@pytest.mark.parametrize("name", sorted(STORE_ONLY - DELAYING))
def test_names_that_only_a_store_writes_are_refused(name: str) -> None:
    assert verdict(client_record(block=name.encode() + b"\x01v\x02")) is Stop.RESERVED_PROPERTY


def test_version_2_is_for_long_topics_only() -> None:
    short = bytearray(client_record(reserve=False))
    topic_at = short.index(b"\x06orders")
    short[topic_at:topic_at] = b"\0"
    short[0:8] = len(short).to_bytes(4, "big") + b"\xda\xa3\x20\xab"

    assert verdict(bytes(short)) is Stop.VERSION


def test_more_records_than_rows_is_reported() -> None:
    rows = new_rows(2)

    assert client_records.validate_batch(as_array(client_record() * 3), rows) == (
        2,
        2,
        Stop.ROWS_FULL,
    )


def test_an_empty_batch_has_no_record_and_no_fault() -> None:
    assert client_records.validate_batch(as_array(b""), new_rows(1)) == (0, -1, Stop.END)


def place(
    data: bytes, host: str = "127.0.0.1:10911", append_crc: bool = True
) -> tuple[bytes, np.ndarray, list[int]]:
    """The placed bytes, their rows, and the next queue offset of each group (all began at 10)."""
    src = as_array(data)
    rows = new_rows(len(data) // 91 + 1)
    count, bad, stop = client_records.validate_batch(src, rows)
    assert (bad, stop) == (-1, Stop.END)
    group_of, first_row, sizes = (np.zeros(len(rows), np.int64) for _ in range(3))
    group_count = batch.group_by_queue(src, rows, count, group_of, first_row, sizes)
    next_offsets = np.full(group_count, 10, np.int64)
    store_host = as_array(encode_host(host))
    size = batch.placed_size(src, rows, count, store_host.size, append_crc, sizes)
    dst = np.full(size + 20, 0xEE, np.uint8)
    placed = new_rows(count)
    end = batch.place_records(
        dst, 10, src, rows, count, group_of, next_offsets, COMMIT_OFFSET, 1_700_000_000_123,
        store_host, append_crc, placed, 0, 0,
    )  # fmt: skip
    assert end == 10 + size == 10 + sizes[:count].sum()
    assert (dst[:10] == 0xEE).all() and (dst[end:] == 0xEE).all()
    untold = np.full(size + 20, 0xEE, np.uint8)
    batch.place_records(
        untold, 10, src, rows, count, group_of, np.full(group_count, 10, np.int64), COMMIT_OFFSET,
        1_700_000_000_123, store_host, append_crc, new_rows(0), 0, 0,
    )  # fmt: skip
    assert (untold == dst).all()
    return dst[10:end].tobytes(), placed, next_offsets.tolist()


@given(client_batches(), st.sampled_from(("10.0.0.5:10911", "[::1]:10911")), st.booleans())
@settings(max_examples=150, deadline=None)
def test_placed_records_are_whole_and_keep_what_the_client_said(
    data: bytes, host: str, append_crc: bool
) -> None:
    if client_records.validate_batch(as_array(data), new_rows(9))[2] != Stop.END:
        return
    log, placed, _ = place(data, host, append_crc)

    at = source_at = 0
    for row in placed.tolist():
        assert check_record(log, at, COMMIT_OFFSET + at) is Stop.END
        record, source = decode_record(log, at), decode_record(data, source_at)
        assert (record.topic, record.queue_id, record.body) == (
            source.topic, source.queue_id, source.body,
        )  # fmt: skip
        assert (record.flag, record.born_host, record.born_timestamp_ms) == (
            source.flag, source.born_host, source.born_timestamp_ms,
        )  # fmt: skip
        assert (record.store_timestamp_ms, encode_host(record.store_host)) == (
            1_700_000_000_123, encode_host(host),
        )  # fmt: skip
        wanted, had = dict(record.properties), dict(source.properties)
        assert ("__CRC32#" in wanted) == (append_crc or "__CRC32#" in had)
        wanted.pop("__CRC32#", None)
        had.pop("__CRC32#", None)
        assert wanted == had
        rescanned = new_rows(1)
        again = np.frombuffer(bytes(10) + log, np.uint8)
        stop = scan.check_record(again, row[0], len(again), COMMIT_OFFSET + at, 7, rescanned, 0)
        assert stop == Stop.END and rescanned[0].tolist() == row
        at += record.total_size
        source_at += source.total_size
    assert (at, source_at) == (len(log), len(data))


def test_each_queue_counts_for_itself() -> None:
    queues = [("a", 0), ("b", 0), ("a", 1), ("a", 0), ("b", 0), ("a", 0)]
    data = b"".join(client_record(topic=topic, queue_id=queue_id) for topic, queue_id in queues)

    log, placed, next_offsets = place(data)

    assert placed[:, columns.QUEUE_OFFSET].tolist() == [10, 10, 10, 11, 11, 12]
    assert next_offsets == [13, 12, 11]
    at = 0
    for offset in (10, 10, 10, 11, 11, 12):
        assert decode_record(log, at).queue_offset == offset
        at += decode_record(log, at).total_size


def test_nothing_is_placed_where_not_everything_fits() -> None:
    data = as_array(client_record() * 2)
    rows, placed = new_rows(2), new_rows(2)
    client_records.validate_batch(data, rows)
    dst = np.zeros(len(data) - 1, np.uint8)
    next_offsets = np.zeros(1, np.int64)

    end = batch.place_records(
        dst, 0, data, rows, 2, np.zeros(2, np.int64), next_offsets, 0, 0, as_array(bytes(8)), True,
        placed, 0, 0,
    )  # fmt: skip

    assert end == -1 and not dst.any() and next_offsets[0] == 0


def test_properties_without_room_for_the_trailer_are_named() -> None:
    full = client_record(block=b"k\x01" + b"v" * 32_764 + b"\x02", reserve=False)
    data = as_array(client_record() + full)
    rows = new_rows(2)
    assert client_records.validate_batch(data, rows)[2] == Stop.END
    sizes = np.zeros(2, np.int64)

    assert batch.placed_size(data, rows, 2, 8, True, sizes) == -2
    assert batch.placed_size(data, rows, 2, 8, False, sizes) == len(data)


def test_ten_thousand_queues_are_grouped_apart() -> None:
    queues = [(f"t{n % 100}", n // 100) for n in range(10_000)] * 2
    data = as_array(b"".join(client_record(topic=t, queue_id=q, body=b"") for t, q in queues))
    rows = new_rows(20_000)
    client_records.validate_batch(data, rows)
    group_of, first_row, sizes = (np.zeros(20_000, np.int64) for _ in range(3))

    assert batch.group_by_queue(data, rows, 20_000, group_of, first_row, sizes) == 10_000
    assert group_of.tolist() == list(range(10_000)) * 2
    assert (sizes[:10_000] == 2).all()


def test_units_stand_by_queue_and_skip_what_is_not_delivered() -> None:
    flags = [0, 0x4, 0x8, 0xC, 0]
    rows = np.zeros((5, columns.COLUMN_COUNT), np.int64)
    rows[:, columns.POSITION] = np.arange(5) * 100
    rows[:, columns.SIZE] = 100
    rows[:, columns.SYS_FLAG] = flags
    rows[:, columns.TAG_CODE] = [-1, 2, 3, 4, -(1 << 31)]
    rows[:, columns.QUEUE_OFFSET] = [5, 6, 7, 8, 7]
    rows[:, columns.QUEUE_ID] = [1, 1, 1, 1, 0]
    arrays = [np.zeros(5, np.int64) for _ in range(3)]
    units, starts = np.zeros(100, np.uint8), np.zeros(6, np.int64)
    offsets = np.zeros(5, np.int64)

    made = queue.build_units(as_array(b""), rows, 5, 1 << 40, *arrays, units, starts, offsets)
    assert made == (2, 3)
    assert starts[:3].tolist() == [0, 2, 3]
    assert list(LAYOUT.iter_unpack(units[:60].tobytes())) == [
        (1 << 40, 100, -1), ((1 << 40) + 200, 100, 3), ((1 << 40) + 400, 100, -(1 << 31)),
    ]  # fmt: skip
    assert offsets[:3].tolist() == [5, 7, 7]


@pytest.mark.parametrize("store_host_size", [8, 20])
def test_check_batch_returns_what_the_three_loops_return(store_host_size: int) -> None:
    data = as_array(
        client_record(topic="a", queue_id=1)
        + client_record(topic="b", queue_id=1, body=b"longer than the others", reserve=False)
        + client_record(topic="a", queue_id=1, block=b"k\x01v")
        + client_record(topic="a", queue_id=2)
    )
    rows, checked = new_rows(4), new_rows(4)
    wanted = [np.full(4, -1, np.int64) for _ in range(4)]
    got = [np.full(4, -1, np.int64) for _ in range(4)]
    queues = np.full((4, batch.QUEUES_COLUMN_COUNT), -1, np.int64)

    assert client_records.validate_batch(data, rows) == (4, -1, Stop.END)
    group_count = batch.group_by_queue(data, rows, 4, *wanted[:3])
    size = batch.placed_size(data, rows, 4, store_host_size, True, wanted[3])
    features = int(np.bitwise_or.reduce(rows[:, columns.FEATURES]))
    for check_batch in (batch.check_batch, batch.check_batch.py_func):
        told = check_batch(data, store_host_size, True, checked, *got, queues)

        assert told == (
            4, -1, Stop.END, group_count, size, len(b"longer than the others"), features,
        )  # fmt: skip
        assert np.array_equal(checked, rows)
        assert all(map(np.array_equal, got, wanted))
        topics = [data[at : at + length].tobytes() for at, length in queues[:3, :2].tolist()]
        assert topics == [b"a", b"b", b"a"]
        sizes = wanted[3].tolist()
        assert queues[:3, 2:].tolist() == [
            [1, 2, sizes[0] + sizes[2]], [1, 1, sizes[1]], [2, 1, sizes[3]],
        ]  # fmt: skip


def test_check_batch_of_a_bad_record_says_nothing_else() -> None:
    data = as_array(client_record() + client_record(topic="a b"))
    arrays = [np.zeros(4, np.int64) for _ in range(4)]
    queues = np.zeros((4, batch.QUEUES_COLUMN_COUNT), np.int64)

    told = batch.check_batch(data, 8, True, new_rows(4), *arrays, queues)

    assert told == (1, 1, Stop.TOPIC, 0, 0, 0, 0)
