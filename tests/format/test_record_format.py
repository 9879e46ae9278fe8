"""Records: vectors computed from the specification, case tables, damage, and round trips."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_records import check_record, encode_record, property_crc_trailer, set_property_crc
from record_examples import encode_again

from storage.format.properties import encode_properties
from storage.format.property_crc import has_property_crc
from storage.format.record import (
    MalformedRecord,
    decode_record,
    encode_blank,
    encode_for_batch,
)
from storage.format.record_layout import (
    MAGIC_V1,
    MAGIC_V2,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.format.record_template import TRAILER, RecordTemplate
from storage.kernels.columns import Stop

PROPERTIES = {
    "KEYS": "order-1",
    "UNIQ_KEY": "7F0000010001000000000000000000AB",
    "WAIT": "true",
    "TAGS": "TagA",
}


VECTOR = bytes.fromhex(
    "000000b4daa320a73610a686000000030000000000000000000000070000000000001000000000000000018bcfe5"
    "68007f0000010000d4310000018bcfe5687b0a00000500002a9f0000000000000000000000000000000568656c6c"
    "6f09546f70696354657374004b4b455953016f726465722d3102554e49515f4b4559013746303030303031303030"
    "313030303030303030303030303030303030304142025741495401747275650254414753015461674102"
)


def vector(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "topic": "TopicTest",
        "queue_id": 3,
        "body": b"hello",
        "properties_block": encode_properties(PROPERTIES),
        "queue_offset": 7,
        "commit_offset": 4096,
        "born_timestamp_ms": 1700000000000,
        "born_host": "127.0.0.1:54321",
        "store_timestamp_ms": 1700000000123,
        "store_host": "10.0.0.5:10911",
    }
    return encode_record(**(fields | changes))  # type: ignore[arg-type]


def test_vector_without_property_crc() -> None:
    """The 180 bytes of the specification's vector come out, and decode to what went in."""
    assert vector() == VECTOR
    record = decode_record(VECTOR)
    assert record.total_size == len(VECTOR) == 180
    assert record.body_crc == 0x3610A686
    assert record.properties == PROPERTIES
    assert (record.topic, record.queue_id, record.queue_offset) == ("TopicTest", 3, 7)
    assert (record.born_host, record.store_host) == ("127.0.0.1:54321", "10.0.0.5:10911")
    assert check_record(VECTOR, 0, 4096) is Stop.END


def test_vector_with_property_crc() -> None:
    """The trailer of the specification's vector comes out, digits reversed, inside both lengths."""
    record = vector(append_property_crc=True)
    assert len(record) == 200
    assert record[:4].hex() == "000000c8"
    assert record[103:105] == (95).to_bytes(2, "big")
    assert record[-20:].hex() == "5f5f435243333223" + "01" + "31383738333130363131" + "02"
    assert zlib.crc32(record[:-20]) & 0x7FFFFFFF == 1160138781
    assert property_crc_trailer(1160138781) == record[-20:]


def test_vector_of_a_blank() -> None:
    """A blank with 1000 bytes left is the specification's eight bytes; one needs eight bytes."""
    assert encode_blank(1000).hex() == "000003e8cbd43194"
    assert check_record(encode_blank(8)) is Stop.BLANK
    with pytest.raises(ValueError, match="8 bytes"):
        encode_blank(7)


CASES = {
    "plain": ({}, MAGIC_V1, 0),
    "no body": ({"body": b""}, MAGIC_V1, 0),
    "no properties": ({"properties_block": b""}, MAGIC_V1, 0),
    "topic of 127 bytes": ({"topic": "t" * 127}, MAGIC_V1, 0),
    "topic of 128 bytes": ({"topic": "%RETRY%" + "t" * 121}, MAGIC_V2, 0),
    "topic of 255 bytes": ({"topic": "%RETRY%" + "t" * 248}, MAGIC_V2, 0),
    "born IPv6": ({"born_host": "[::1]:7"}, MAGIC_V1, SYS_FLAG_BORN_HOST_V6),
    "store IPv6": ({"store_host": "[::1]:7"}, MAGIC_V1, SYS_FLAG_STORE_HOST_V6),
    "both IPv6": (
        {"born_host": "[::1]:7", "store_host": "[fe80::2]:8"},
        MAGIC_V1,
        SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6,
    ),
    "IPv6 bits of IPv4 hosts are cleared": ({"sys_flag": 0x30}, MAGIC_V1, 0),
    "committed": ({"sys_flag": 8, "prepared_transaction_offset": 99}, MAGIC_V1, 8),
}


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize(("changes", "magic", "sys_flag"), CASES.values(), ids=CASES)
def test_cases_both_ways(changes: dict[str, object], magic: int, sys_flag: int, crc: bool) -> None:
    """Each kind of record encodes, passes every check, decodes, and encodes to the same bytes."""
    encoded = vector(**changes, append_property_crc=crc)
    record = decode_record(encoded)
    assert (record.magic, record.sys_flag) == (magic, sys_flag)
    assert check_record(encoded, 0, 4096) is Stop.END
    assert has_property_crc(record.properties_block) is crc
    assert encode_again(record, append_property_crc=crc) == encoded


def flipped(position: int, bit: int = 0) -> bytes:
    damaged = bytearray(vector(append_property_crc=True))
    damaged[position] ^= 1 << bit
    return bytes(damaged)


def with_size(size: int) -> bytes:
    return size.to_bytes(4, "big", signed=True) + vector()[4:]


DAMAGE = {
    "eight zero bytes": (bytes(200), Stop.ZERO),
    "a size before a wrong magic": (flipped(4), Stop.MAGIC),
    "a negative size": (with_size(-1), Stop.SIZE),
    "a size below the smallest record": (with_size(90), Stop.SIZE),
    "a size beyond the buffer": (with_size(181), Stop.TRUNCATED),
    "a size one too small": (with_size(179), Stop.LENGTHS),
    "a body flipped": (flipped(89), Stop.BODY_CRC),
    "a body CRC flipped": (flipped(11), Stop.BODY_CRC),
    "a queue offset flipped": (flipped(27), Stop.PROPERTY_CRC),
    "a property flipped": (flipped(110), Stop.PROPERTY_CRC),
    "a CRC digit flipped": (flipped(-2), Stop.PROPERTY_CRC),
    "a born host's port flipped": (flipped(52), Stop.HOST),
    "a store host's port flipped": (flipped(69), Stop.HOST),
    "an empty topic": (vector(topic=""), Stop.TOPIC),
    "a topic that would leave its directory": (vector(topic=".."), Stop.TOPIC),
    "a topic with a slash": (vector(topic="a/b"), Stop.TOPIC),
    "another place": (vector(commit_offset=0), Stop.COMMIT_OFFSET),
}


@pytest.mark.parametrize(("data", "verdict"), DAMAGE.values(), ids=DAMAGE)
def test_damage_has_its_verdict(data: bytes, verdict: Stop) -> None:
    """What is wrong with the bytes is what the verdict says."""
    assert check_record(data, 0, 4096) is verdict


@pytest.mark.parametrize("crc", [False, True])
def test_every_truncation_is_refused(crc: bool) -> None:
    """A record cut at any byte never decodes; zeros in place of its end show by the property CRC."""
    record = vector(append_property_crc=crc)
    for length in range(len(record)):
        with pytest.raises(MalformedRecord) as refused:
            decode_record(record[:length])
        assert refused.value.stop is Stop.TRUNCATED
        torn = record[:length] + bytes(len(record) - length)
        assert not crc or check_record(torn, 0, 4096) is not Stop.END


@pytest.mark.parametrize("position", [-1, -180])
def test_negative_positions_do_not_wrap(position: int) -> None:
    """A negative position is outside the buffer, not counted from its end."""
    assert check_record(VECTOR, position) is Stop.TRUNCATED


def test_position_in_a_larger_buffer() -> None:
    """Records decode in place, from every kind of buffer."""
    padded = b"x" * 33 + VECTOR + b"y" * 7
    for buffer in (padded, bytearray(padded), memoryview(padded)):
        assert decode_record(buffer, 33) == decode_record(VECTOR)
        assert check_record(buffer, 33, 4096) is Stop.END


def test_a_topic_that_is_not_text_is_malformed() -> None:
    """Bytes that are not UTF-8 where the topic stands are an error of their own."""
    damaged = bytearray(VECTOR)
    damaged[95] = 0xFF
    with pytest.raises(MalformedRecord) as refused:
        decode_record(damaged)
    assert refused.value.stop is Stop.TOPIC


def test_batch_record_leaves_the_stores_fields_zero() -> None:
    """A client's record has zeros where the store writes, and room for the property CRC."""
    block = encode_properties({"TAGS": "a"})
    encoded = encode_for_batch("topic", 2, b"body", block, 5, 0, 123, "127.0.0.1:9")
    record = decode_record(encoded)
    assert (record.queue_offset, record.commit_offset, record.store_timestamp_ms) == (0, 0, 0)
    assert record.store_host == "0.0.0.0:0"
    assert (record.flag, record.born_timestamp_ms, record.born_host) == (5, 123, "127.0.0.1:9")
    assert record.properties_block == block + b"__CRC32#\x010000000000\x02"
    bare = encode_for_batch("topic", 2, b"body", block, 5, 0, 123, "127.0.0.1:9", False)
    assert decode_record(bare).properties_block == block
    filled = bytearray(encoded)
    set_property_crc(filled)
    assert check_record(filled, 0, 0) is Stop.END


def test_trailer_ends_a_pair_that_was_left_open() -> None:
    """Properties without their last separator get it before the trailer."""
    encoded = vector(properties_block=b"a\x01b", append_property_crc=True)
    assert decode_record(encoded).properties_block.startswith(b"a\x01b\x02__CRC32#\x01")
    assert check_record(encoded, 0, 4096) is Stop.END


@pytest.mark.parametrize(
    "changes", [{"properties_block": b"p" * 32_768}, {"topic": "t" * 32_768}], ids=str
)
def test_too_long_for_the_length_field(changes: dict[str, object]) -> None:
    """What its length field cannot say is refused."""
    with pytest.raises(ValueError, match="more than 32767"):
        vector(**changes)


i32 = st.integers(-(2**31), 2**31 - 1)


i64 = st.integers(-(2**63), 2**63 - 1)


hosts = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.integers(0, 65535)).map(lambda h: f"{h[0]}:{h[1]}"),
    st.tuples(st.ip_addresses(v=6), st.integers(0, 65535)).map(lambda h: f"[{h[0]}]:{h[1]}"),
)


@given(
    st.fixed_dictionaries(
        {
            "topic": st.text("abcXYZ019%|-_", min_size=1, max_size=255),
            "queue_id": i32,
            "body": st.binary(max_size=300),
            "properties_block": st.binary(max_size=200),
            "flag": i32,
            "sys_flag": st.integers(0, 0xFFFF).map(lambda flag: flag & ~0x30),
            "queue_offset": i64,
            "commit_offset": i64,
            "born_timestamp_ms": i64,
            "born_host": hosts,
            "store_timestamp_ms": i64,
            "store_host": hosts,
            "reconsume_times": i32,
            "prepared_transaction_offset": i64,
        }
    )
)
def test_round_trip(fields: dict[str, object]) -> None:
    """Whatever goes into a record comes out of it."""
    encoded = encode_record(**fields)  # type: ignore[arg-type]
    record = decode_record(encoded)
    for name in fields.keys() - {"born_host", "store_host", "sys_flag"}:
        assert getattr(record, name) == fields[name]
    assert record.sys_flag & ~0x30 == fields["sys_flag"]
    assert (
        encode_record(**(fields | {"born_host": record.born_host, "store_host": record.store_host}))
        == encoded
    )  # type: ignore[arg-type]


@given(st.binary(max_size=400), st.integers(-3, 400))
def test_any_bytes_get_a_verdict(data: bytes, position: int) -> None:
    """No bytes make the decoder fail in another way than its own error."""
    verdict = check_record(data, position)
    try:
        decode_record(data, position)
    except MalformedRecord as refused:
        assert refused.stop is verdict or refused.stop is Stop.TOPIC
    else:
        assert verdict in (
            Stop.END, Stop.BODY_CRC, Stop.HOST, Stop.TOPIC, Stop.PROPERTY_CRC,
        )  # fmt: skip


@given(
    topic=st.sampled_from(["t", "orders", "x" * 127, "%RETRY%" + "y" * 150]),
    queue_id=st.integers(0, 1000),
    flag=st.integers(-(2**31), 2**31 - 1),
    born_timestamp_ms=st.integers(0, 2**62),
    born_host=st.sampled_from(["0.0.0.0:0", "10.1.2.3:4567", "[2001:db8::1]:10911"]),
    body=st.binary(max_size=300),
    block=st.sampled_from([b"", b"KEYS\x01a b\x02", "TAGS\x01\u00fcn\x02".encode()]),
)
def test_a_template_encodes_what_the_plain_encoder_does(
    topic: str,
    queue_id: int,
    flag: int,
    born_timestamp_ms: int,
    born_host: str,
    body: bytes,
    block: bytes,
) -> None:
    """Same bytes for every version, host family, body and property block."""
    template = RecordTemplate(
        topic, queue_id, flag=flag, born_timestamp_ms=born_timestamp_ms, born_host=born_host
    )

    plain = encode_for_batch(topic, queue_id, body, block, flag, 0, born_timestamp_ms, born_host)

    assert template.encode(body, block + TRAILER) == plain
