"""The scan kernels agree with the one-record decoder of storage.format."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from plain_records import check_record, encode_record
from record_examples import as_array, damaged, logs, stored_records

from storage.format.properties import decode_properties, java_hash
from storage.format.property_crc import has_property_crc
from storage.format.record import decode_record, encode_blank
from storage.kernels import columns, scan
from storage.kernels.columns import Stop, new_rows

BASE = 1 << 33


def walk(data: bytes, checks: int = columns.CHECK_ALL) -> tuple[list[list[int]], int, Stop]:
    """Rows, next position and stop of a scan of all of ``data``, which begins at BASE."""
    rows = new_rows(64)
    count, position, stop = scan.scan_records(as_array(data), 0, len(data), BASE, checks, rows)
    return rows[:count].tolist(), int(position), Stop(stop)


@given(st.one_of(logs(BASE), damaged(logs(BASE)), st.binary(max_size=150)))
@settings(max_examples=200, deadline=None)
def test_a_scan_goes_as_far_as_the_decoder_finds_records_good(data: bytes) -> None:
    rows, position, stop = walk(data)

    at = 0
    for row in rows:
        assert row[columns.POSITION] == at
        assert check_record(data, at, BASE + at) is Stop.END
        at += row[columns.SIZE]
    assert at == position
    if position == len(data):
        assert stop is Stop.END
    else:
        assert stop == check_record(data, at, BASE + at)


@given(stored_records(BASE))
@settings(max_examples=200, deadline=None)
def test_a_row_has_what_the_decoder_returns(data: bytes) -> None:
    [row], _, _ = walk(data)
    record = decode_record(data)
    properties = decode_properties(record.properties_block)

    def text(position: int, length: int) -> str:
        start = row[position]
        return data[start : start + row[length]].decode(errors="replace")

    assert row[columns.SIZE] == record.total_size
    assert row[columns.QUEUE_ID] == record.queue_id
    assert row[columns.QUEUE_OFFSET] == record.queue_offset
    assert row[columns.COMMIT_OFFSET] == record.commit_offset
    assert row[columns.SYS_FLAG] == record.sys_flag
    assert row[columns.STORE_TIMESTAMP] == record.store_timestamp_ms
    at = row[columns.STORE_TIMESTAMP_POSITION]
    assert int.from_bytes(data[at : at + 8], "big", signed=True) == record.store_timestamp_ms
    body = row[columns.BODY_POSITION]
    assert data[body : body + row[columns.BODY_LENGTH]] == record.body
    assert text(columns.TOPIC_POSITION, columns.TOPIC_LENGTH) == record.topic
    block = row[columns.PROPERTIES_POSITION]
    assert data[block : block + row[columns.PROPERTIES_LENGTH]] == record.properties_block
    assert row[columns.TAG_CODE] == java_hash(properties.get("TAGS", ""))
    assert text(columns.KEYS_POSITION, columns.KEYS_LENGTH) == properties.get("KEYS", "")
    assert text(columns.UNIQ_KEY_POSITION, columns.UNIQ_KEY_LENGTH) == properties.get(
        "UNIQ_KEY", ""
    )
    features = {
        columns.HAS_TAGS: "TAGS" in properties,
        columns.HAS_KEYS: "KEYS" in properties,
        columns.HAS_UNIQ_KEY: "UNIQ_KEY" in properties,
        columns.HAS_PROPERTY_CRC: has_property_crc(record.properties_block),
        columns.HAS_MULTI_DISPATCH: "INNER_MULTI_DISPATCH" in properties,
        columns.HAS_DELAY: "DELAY" in properties,
    }
    assert row[columns.FEATURES] == sum(bit for bit, present in features.items() if present)


@given(st.binary(max_size=40).filter(lambda value: b"\x02" not in value))
def test_a_tag_hashes_as_java_hashes_it_broken_utf8_included(tag: bytes) -> None:
    data = encode_record(
        topic="t",
        queue_id=0,
        body=b"",
        properties_block=b"TAGS\x01" + tag + b"\x02",
        commit_offset=BASE,
    )

    [row], _, _ = walk(data)

    assert row[columns.TAG_CODE] == java_hash(tag.decode(errors="replace"))


def _record(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "topic": "t",
        "queue_id": 0,
        "body": b"body",
        "commit_offset": BASE,
    }
    return encode_record(**fields | changes)  # type: ignore[arg-type]


def test_each_check_is_made_only_when_asked_for() -> None:
    flipped_body = bytearray(_record())
    flipped_body[88] ^= 1
    flipped_flag = bytearray(_record(append_property_crc=True))
    flipped_flag[16] ^= 1
    misplaced = _record(commit_offset=BASE + 1)
    for data, check, stop in (
        (flipped_body, columns.CHECK_BODY_CRC, Stop.BODY_CRC),
        (flipped_flag, columns.CHECK_PROPERTY_CRC, Stop.PROPERTY_CRC),
        (misplaced, columns.CHECK_COMMIT_OFFSET, Stop.COMMIT_OFFSET),
        (_record(properties_block=b"k\x01v\0"), columns.CHECK_PROPERTY_CRC, Stop.PROPERTIES),
    ):
        assert walk(bytes(data), check)[2] is stop
        assert walk(bytes(data), columns.CHECK_ALL & ~check)[2] is Stop.END


def test_stops_name_what_stands_there() -> None:
    whole = _record()
    for tail, stop in (
        (b"", Stop.END),
        (bytes(8), Stop.ZERO),
        (bytes(7), Stop.TRUNCATED),
        (encode_blank(8), Stop.BLANK),
        (whole[:-1], Stop.TRUNCATED),
        (b"\x00\x00\x00\x5a" + whole[4:], Stop.SIZE),
        (whole[:4] + b"\xda\xa3\x20\xa8" + whole[8:], Stop.MAGIC),
        (whole[:84] + b"\x7f\xff\xff\xff" + whole[88:], Stop.LENGTHS),
        (whole[:52] + b"\xff" + whole[53:], Stop.HOST),
        (whole[:69] + b"\x01" + whole[70:], Stop.HOST),
        (_record(topic="a/b"), Stop.TOPIC),
        (_record(topic=".."), Stop.TOPIC),
        (_record(topic=""), Stop.TOPIC),
    ):
        rows, position, stopped = walk(whole + tail, 0)

        assert (len(rows), position, stopped) == (1, len(whole), stop)


def test_a_full_row_table_stops_where_the_next_scan_goes_on() -> None:
    whole = _record()
    rows = new_rows(2)

    count, position, stop = scan.scan_records(as_array(whole * 3), 0, 3 * len(whole), 0, 0, rows)

    assert (count, position, stop) == (2, 2 * len(whole), Stop.ROWS_FULL)


def test_a_range_outside_the_array_is_not_read() -> None:
    data = as_array(_record())
    rows = new_rows(1)
    for begin, end in ((-1, 9), (0, len(data) + 1), (9, 8)):
        assert scan.scan_records(data, begin, end, 0, 0, rows) == (0, begin, Stop.TRUNCATED)
        assert scan.find_record(data, begin, end, 0) == -1


class TestFindRecord:
    def test_it_steps_over_damage_to_the_next_whole_record(self) -> None:
        first = _record()
        second = _record(commit_offset=BASE + len(first))
        data = bytearray(first + second)
        data[4] ^= 1

        assert scan.find_record(as_array(bytes(data)), 0, len(data), BASE) == len(first)

    def test_a_record_inside_a_body_is_none(self) -> None:
        inner = _record()
        outer = bytearray(_record(body=inner))
        outer[4] ^= 1
        behind = _record(commit_offset=BASE + len(outer))
        data = bytes(outer) + behind

        assert scan.find_record(as_array(data), 0, len(data), BASE) == len(outer)

    def test_nothing_whole_is_minus_one(self) -> None:
        stale = _record(commit_offset=BASE - 1)
        broken = bytearray(_record(append_property_crc=True))
        broken[16] ^= 1
        for data in (b"", stale, bytes(broken), _record()[:-1]):
            assert scan.find_record(as_array(data), 0, len(data), BASE) == -1


def judged(data: bytes) -> Stop:
    """The verdict of kernel and decoder, which have to agree, on the record that ``data`` is."""
    _, _, stop = walk(data)
    verdict = check_record(data, 0, BASE)
    assert stop == verdict
    return verdict


class TestDamagedTrailer:
    WHOLE = _record(
        properties_block=b"KEYS\x01k\x02TAGS\x01t\x02", queue_offset=7, append_property_crc=True
    )

    def test_no_bit_of_a_record_flips_unseen(self) -> None:
        assert judged(self.WHOLE) is Stop.END
        for position in range(len(self.WHOLE)):
            for bit in range(8):
                data = bytearray(self.WHOLE)
                data[position] ^= 1 << bit

                assert judged(bytes(data)) is not Stop.END, (position, bit)

    def test_no_byte_of_the_trailer_changes_unseen(self) -> None:
        for position in range(len(self.WHOLE) - 20, len(self.WHOLE)):
            for byte in set(range(256)) - {self.WHOLE[position]}:
                data = bytearray(self.WHOLE)
                data[position] = byte

                assert judged(bytes(data)) is not Stop.END, (position, byte)

    def test_nine_bytes_of_garbage_in_a_trailer_are_seen(self) -> None:
        for garbage in (b"\xff", b"\x01", b"\x00"):
            for position in range(len(self.WHOLE) - 20, len(self.WHOLE) - 8):
                data = bytearray(self.WHOLE)
                data[position : position + 9] = garbage * 9

                assert judged(bytes(data)) is not Stop.END, (position, garbage)

    def test_a_damaged_trailer_on_a_damaged_record_is_seen(self) -> None:
        for position in (-12, -1):
            data = bytearray(self.WHOLE)
            data[16] ^= 1
            data[position] ^= 0x40

            assert judged(bytes(data)) is Stop.PROPERTY_CRC

    def test_properties_that_look_like_a_trailer_are_the_senders(self) -> None:
        for block in (
            b"__CRC32C\x013735928559\x02",
            b"__CRC64#\x01          \x02",
            b"CRC32\x0112345678901\x02",
            b"created\x011700000000123\x02",
            b"a__CRC32#=1\x013735928559",
            b"x\x01" + b"0123456789" * 3,
        ):
            assert judged(_record(properties_block=block)) is Stop.END, block
