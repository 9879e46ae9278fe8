"""Consume queue units, extension entries, index files, the checkpoint's broker part, bodies."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UnreadableBody, UnsupportedFormat
from storage.format.checkpoint import (
    BROKER_SIZE,
    BrokerFields,
    IndexerSlot,
    WriterSlot,
)
from storage.format.compression import (
    UNPACKED_SIZE_MAX,
    Compression,
    compress,
    compression_of,
    decompress,
)
from storage.format.consume_entry import LAYOUT as UNIT
from storage.format.consume_entry import (
    PREFILL_UNIT,
    light_queues,
    record_tag_code,
    tag_code,
)
from storage.format.extension_entry import (
    ENTRY_SIZE_MIN,
    ExtensionEntry,
    decode_address,
    decode_extension,
    is_address,
)
from storage.format.extension_entry import LAYOUT as EXTENSION
from storage.format.index import (
    IndexHeader,
    entry_position,
    file_size,
    key_hash,
)
from storage.format.index_checksums import ChecksumRow, decode_table, encode_table
from storage.format.properties import java_hash

SMALLEST_HASH = ("t", "7mebviu")


i32 = st.integers(-(2**31), 2**31 - 1)


i64 = st.integers(-(2**63), 2**63 - 1)


def test_unit_vectors() -> None:
    """The specification's units come out: a plain one, one with a negative hash, a prefill one."""
    assert UNIT.pack(4096, 180, tag_code("TagA")).hex() == (
        "0000000000001000" + "000000b4" + "000000000027a807"
    )
    assert UNIT.pack(0, 1, -1829193424).hex()[-16:] == "ffffffff92f8b930"
    assert PREFILL_UNIT.hex() == "0000000000000000" + "7fffffff" + "0000000000000000"


@pytest.mark.parametrize(
    ("topic", "properties", "code"),
    [
        ("t", {}, 0),
        ("t", {"TAGS": ""}, 0),
        ("t", {"TAGS": "TagA"}, 2598919),
        ("t", {"TAGS": "TagA", "DELAY": "3"}, 2598919),
        ("t", {"TAGS": "Tag😀"}, 82337373),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA", "DELAY": "1"}, 1_000_000 + 1_000),
        ("SCHEDULE_TOPIC_XXXX", {"DELAY": "18"}, 1_000_000 + 7_200_000),
        ("SCHEDULE_TOPIC_XXXX", {"DELAY": "30"}, 1_000_000 + 7_200_000),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA", "DELAY": "0"}, 2598919),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA", "DELAY": "x"}, 2598919),
    ],
)
def test_tag_codes(topic: str, properties: dict[str, str], code: int) -> None:
    """A unit holds the tag's hash, or of a parked message when it is due."""
    assert record_tag_code(topic, properties, 1_000_000) == code


@pytest.mark.parametrize(
    ("names", "offsets", "found"),
    [
        ("%LMQ%a,%LMQ%b", "3,0", [("%LMQ%a", 3), ("%LMQ%b", 0)]),
        ("%LMQ%a,%LMQ%b", "3", []),
        ("%LMQ%a,%LMQ%b", "x,7", [("%LMQ%b", 7)]),
        ("plain,%LMQ%a/b,%LMQ%c", "1,2,3", [("%LMQ%c", 3)]),
        ("", "", []),
    ],
)
def test_light_queues(names: str, offsets: str, found: list[tuple[str, int]]) -> None:
    """A record is in each light queue that it names, if it names as many offsets."""
    properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    assert light_queues(properties) == found
    assert light_queues({}) == []


def extension(entry: ExtensionEntry) -> bytes:
    head = EXTENSION.pack(
        ENTRY_SIZE_MIN + len(entry.bitmap),
        entry.tag_code,
        entry.store_timestamp_ms,
        len(entry.bitmap),
    )
    return head + entry.bitmap


@given(i64, i64, st.binary(max_size=40))
def test_extension_entries_both_ways(code: int, timestamp: int, bitmap: bytes) -> None:
    """Extension entries decode to what they were made of; every truncation is refused."""
    entry = ExtensionEntry(code, timestamp, bitmap)
    encoded = extension(entry)
    assert decode_extension(encoded + b"rest") == entry
    for length in range(len(encoded)):
        with pytest.raises(ValueError):
            decode_extension(encoded[:length])


def test_extension_end_and_contradictions() -> None:
    """The end mark and unused space are not an entry; contradicting lengths are an error."""
    assert decode_extension(b"\xff\xff") is None
    assert decode_extension(bytes(40)) is None
    bad = bytearray(extension(ExtensionEntry(1, 2, b"ab")))
    bad[19] = 3
    with pytest.raises(ValueError, match="bitmap"):
        decode_extension(bad)


@given(st.integers(0, 2**62))
def test_extension_addresses(position: int) -> None:
    """An address differs from any hash and any delivery time, and names its position."""
    address = position - 2**63
    assert is_address(address)
    assert decode_address(address) == position
    assert not is_address(-(2**31))
    assert not is_address(1_700_000_000_000)


def test_index_vectors() -> None:
    """Hashes, slots and positions of the specification."""
    assert key_hash("TopicTest", "order-1") == 1829193424
    assert file_size(5_000_000, 20_000_000) == 420_000_040
    assert entry_position(5_000_000, 0) == 20_000_040
    assert entry_position(5_000_000, 1) == 20_000_060
    assert key_hash("", "") == ord("#")


def test_smallest_hash_is_zero() -> None:
    """The one hash without a positive counterpart is stored as 0."""
    topic, key = SMALLEST_HASH
    assert java_hash(f"{topic}#{key}") == -(2**31)
    assert key_hash(topic, key) == 0


@given(st.tuples(i64, i64, i64, i64, i32, st.integers(1, 2**31 - 1)))
def test_index_headers_both_ways(values: tuple[int, ...]) -> None:
    """Headers decode to what they were made of."""
    header = IndexHeader(*values)
    assert IndexHeader.decode(header.encode()) == header


def test_new_index_file_begins_at_entry_one() -> None:
    """An all-zero header, or a negative count, reads as a file without entries."""
    assert IndexHeader.decode(bytes(40)) == IndexHeader() == IndexHeader(next_entry=1)
    assert IndexHeader.decode(bytes(36) + b"\xff" * 4).next_entry == 1
    with pytest.raises(ValueError, match="40 bytes"):
        IndexHeader.decode(bytes(39))


@given(st.tuples(i64, i64, i64, i64, i64))
def test_broker_fields_both_ways(values: tuple[int, ...]) -> None:
    """A broker's 40 bytes decode to what they were made of; a short page reads as zeros."""
    fields = BrokerFields(*values)
    assert len(fields.encode()) == BROKER_SIZE
    assert BrokerFields.decode(fields.encode() + bytes(4056)) == fields
    short = BrokerFields.decode(fields.encode()[:24])
    assert (short.index_timestamp_ms, short.confirm_offset) == (values[2], 0)


SLOTS = [
    WriterSlot(True, 7, bytes(range(16)), 100, 90, 5, bytes(range(32)), bytes(32)),
    IndexerSlot(False, 8, bytes(range(16)), 80, 20231114221320123, bytes(range(40))),
]


@pytest.mark.parametrize("slot", SLOTS, ids=["writer", "indexer"])
def test_slots_both_ways_and_damaged(slot: WriterSlot | IndexerSlot) -> None:
    """A slot decodes where it stands; with any bit flipped or any byte missing it is absent."""
    encoded = slot.encode()
    assert type(slot).decode(b"x" * 9 + encoded, 9) == slot
    for length in range(len(encoded)):
        assert type(slot).decode(encoded[:length], 0) is None
    for bit in range(8 * len(encoded)):
        flipped = bytearray(encoded)
        flipped[bit // 8] ^= 1 << bit % 8
        assert type(slot).decode(bytes(flipped), 0) is None
    assert type(slot).decode(bytes(len(encoded)), 0) is None


@pytest.mark.parametrize("slot", SLOTS, ids=["writer", "indexer"])
def test_slot_of_a_newer_version(slot: WriterSlot | IndexerSlot) -> None:
    """An intact slot of a version to come is an error of its own, never taken for absent."""
    from zlib import crc32

    covered = bytearray(slot.encode()[:-4])
    covered[8] += 1
    newer = bytes(covered) + crc32(covered).to_bytes(4, "little")
    with pytest.raises(UnsupportedFormat):
        type(slot).decode(newer, 0)


@pytest.mark.parametrize("compression", ["none", "zlib", "lz4", "zstd"])
@pytest.mark.parametrize("body", [b"", b"a", b"hello " * 1000, bytes(range(256))])
def test_bodies_both_ways(compression: Compression, body: bytes) -> None:
    """Each compression undoes itself and says what it was in the system flag."""
    packed, bits = compress(body, compression)
    assert decompress(packed, bits) == decompress(packed, bits, size_max=max(1, len(body))) == body
    assert compression_of(bits) == compression
    assert bits == {"none": 0, "zlib": 0x301, "lz4": 0x101, "zstd": 0x201}[compression]


def test_old_clients_zlib() -> None:
    """Compressed without a type means zlib."""
    packed, _ = compress(b"body", "zlib")
    assert decompress(packed, 0x1) == b"body"


@pytest.mark.parametrize("bits", [0x1, 0x301])
@pytest.mark.parametrize("members", [[b"ab"], [b"a", b"b"]])
def test_what_has_the_magic_of_gzip_is_gzip(bits: int, members: list[bytes]) -> None:
    """As RocketMQ's gRPC clients send it; of more than one member it is all of them."""
    assert decompress(b"".join(map(gzip.compress, members)), bits) == b"ab"


def test_gzip_of_very_many_members_is_refused_and_what_follows_the_last_is_left_out() -> None:
    """Each member costs time, of which a body of a few bytes a member could take seconds."""
    empty = gzip.compress(b"")
    assert decompress(empty * 9_999 + gzip.compress(b"body") + b"junk", 0x1) == b"body"
    with pytest.raises(UnreadableBody, match="more than 10000 members"):
        decompress(empty * 10_001, 0x1)
    with pytest.raises(UnreadableBody, match="gzip stream ends too early"):
        decompress(gzip.compress(b"body") + empty[:-1], 0x1)


@pytest.mark.parametrize("bits", [0x101, 0x201, 0x301, 0x1, 0x401, 0x701])
@pytest.mark.parametrize("body", [b"no such stream", b"\x1f\x8b\x08 nor gzip"])
def test_body_that_does_not_decompress(body: bytes, bits: int) -> None:
    """Damaged streams and codes without a meaning have one error; nothing stays nothing."""
    with pytest.raises(UnreadableBody):
        decompress(body, bits)
    if bits < 0x400:
        assert decompress(b"", bits) == b""


def packed_in_every_way(body: bytes) -> list[tuple[bytes, int]]:
    kinds: tuple[Compression, ...] = ("zlib", "lz4", "zstd")
    return [(gzip.compress(body), 0x1), *(compress(body, kind, level=1) for kind in kinds)]


def test_truncated_body() -> None:
    """A stream cut short is an error, not a shorter body."""
    for packed, bits in packed_in_every_way(b"hello " * 1000):
        for length in (1, len(packed) // 2, len(packed) - 1):
            with pytest.raises(UnreadableBody):
                decompress(packed[:length], bits)


def test_body_that_decompresses_to_too_much() -> None:
    """A small stream may stand for any size: it is given up before that is made, asked for or not."""
    for packed, bits in packed_in_every_way(bytes(96 << 20)):
        tracemalloc.start()
        try:
            with pytest.raises(UnreadableBody, match="more than 1000000 bytes"):
                decompress(packed, bits, size_max=1_000_000)
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
            with pytest.raises(UnreadableBody, match=f"more than {UNPACKED_SIZE_MAX} bytes"):
                decompress(packed, bits)
        finally:
            tracemalloc.stop()


ROWS = {
    number: ChecksumRow(number, IndexHeader(end_commit_offset=number).encode(), number % 997, 5)
    for number in (20260101000000000, 20260102000000000)
}


def test_a_table_is_read_as_it_was_written() -> None:
    assert decode_table(encode_table(ROWS.values())) == ROWS
    assert decode_table(encode_table([])) == {}


def test_a_table_with_a_flipped_bit_or_a_lost_end_has_no_rows() -> None:
    data = encode_table(ROWS.values())
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode_table(bytes(changed)) == {}
    assert all(decode_table(data[:end]) == {} for end in range(len(data)))
