"""Every byte layout stands once, as a table in a docstring; here the tables meet the code."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from types import ModuleType

import pytest
from plain_records import encode_record, property_crc_trailer

from storage.format import (
    checkpoint,
    consume_entry,
    extension_entry,
    index,
    index_checksums,
    pool_header,
    property_crc,
    record,
    record_layout,
    stage,
)
from storage.format.hosts import encode_host

FORMAT_OF_TYPE = {"i8": "b", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q"}
ROW = re.compile(r"^ +(\S+(?: / \S+)?) +(\S+) +([iu](?:8|16|32|64)|\d+s) +(\w+)")
END = re.compile(r"^ +(\d+)$")


@dataclass
class Table:
    rows: list[tuple[str, str, str, str]]
    end: int | None = None


def tables_of(module: ModuleType) -> list[Table]:
    """Tables with offset, size, type and field columns, in the order of the docstring."""
    tables: list[Table] = []
    inside = False
    for line in (module.__doc__ or "").splitlines():
        if re.match(r"^ +offset +size +type +field", line):
            tables.append(Table([]))
            inside = True
        elif inside and (row := ROW.match(line)):
            tables[-1].rows.append(row.groups())  # type: ignore[arg-type]
        elif inside and (end := END.match(line)):
            tables[-1].end = int(end[1])
            inside = False
    return tables


STRUCTS = [
    (consume_entry, 0, consume_entry.LAYOUT),
    (index, 0, index.HEADER),
    (index, 1, index.ENTRY),
    (index_checksums, 0, index_checksums.HEAD),
    (index_checksums, 1, index_checksums.ROW),
    (extension_entry, 0, extension_entry.LAYOUT),
    (checkpoint, 0, checkpoint.BROKER_LAYOUT),
    (checkpoint, 1, checkpoint.WRITER_LIVE_LAYOUT),
    (checkpoint, 2, checkpoint.INDEXER_LIVE_LAYOUT),
    (checkpoint, 3, checkpoint.WRITER_SLOT_LAYOUT),
    (checkpoint, 4, checkpoint.INDEXER_SLOT_LAYOUT),
    (pool_header, 0, pool_header.LAYOUT),
    (stage, 0, stage.BLOCK_HEAD),
]


@pytest.mark.parametrize(("module", "number", "layout"), STRUCTS)
def test_struct_is_its_table(module: ModuleType, number: int, layout: struct.Struct) -> None:
    """Field for field: the struct has the table's widths at the table's offsets and its end."""
    table = tables_of(module)[number]
    order = layout.format[0]
    at = 0
    letters = ""
    for offset, size, kind, field in table.rows:
        letter = FORMAT_OF_TYPE.get(kind, kind)
        assert int(offset) == at, field
        assert int(size) == struct.calcsize(order + letter), field
        letters += letter
        at += int(size)
    assert struct.calcsize(order + letters) == layout.size == at
    assert [type(v) for v in struct.unpack(order + letters, bytes(at))] == [
        type(v) for v in layout.unpack(bytes(at))
    ]
    assert struct.unpack(order + letters, bytes(range(at))) == layout.unpack(bytes(range(at)))
    assert table.end in (at, None)


def test_named_positions_are_those_of_the_tables() -> None:
    """Live words are named in the order of their table; an index header's fields stand where it says."""
    tables = tables_of(checkpoint)
    for table, words in (
        (tables[1], checkpoint.WRITER_LIVE_WORDS),
        (tables[2], checkpoint.INDEXER_LIVE_WORDS),
    ):
        assert [(str(8 * place), word) for place, word in enumerate(words)] == [
            (offset, field) for offset, _, _, field in table.rows if field != "reserved"
        ]
    for offset, _, _, field in tables_of(index)[0].rows:
        name = field.removesuffix("_ms").upper()
        assert getattr(index, f"{name}_POSITION") == int(offset), field
    entry = {field: int(offset) for offset, _, _, field in tables_of(index)[1].rows}
    assert entry["commit_offset"] == index.COMMIT_OFFSET_IN_ENTRY
    assert entry["time_delta_s"] == index.TIME_DELTA_IN_ENTRY
    assert entry["previous_entry"] == index.PREVIOUS_IN_ENTRY
    unit = {field: int(offset) for offset, _, _, field in tables_of(consume_entry)[0].rows}
    assert unit["record_size"] == consume_entry.SIZE_IN_UNIT
    assert unit["tag_code"] == consume_entry.TAG_CODE_IN_UNIT


FIELDS = {
    "queue_id": 0x01020304,
    "flag": -5,
    "queue_offset": 0x0102030405060708,
    "commit_offset": 0x1112131415161718,
    "born_timestamp_ms": 0x2122232425262728,
    "store_timestamp_ms": 0x3132333435363738,
    "reconsume_times": 0x41424344,
    "prepared_transaction_offset": 0x5152535455565758,
}


@pytest.mark.parametrize("born_host", ["1.2.3.4:5", "[1:2:3:4:5:6:7:8]:9"])
@pytest.mark.parametrize("store_host", ["5.6.7.8:9", "[8:7:6:5:4:3:2:1]:10"])
def test_record_is_its_table(born_host: str, store_host: str) -> None:
    """Every fixed field of an encoded record stands where the table says, for each host length."""
    encoded = encode_record(
        topic="t", body=b"hello", born_host=born_host, store_host=store_host, **FIELDS
    )
    decoded = record.decode_record(encoded)
    lengths = {"B": len(encode_host(born_host)), "S": len(encode_host(store_host)), "n": 5}
    names = set()
    for offset, _, kind, field in tables_of(record_layout)[0].rows:
        if not re.fullmatch(r"\d+(\+[BSn])*", offset):
            continue
        at = eval(offset, lengths)
        (value,) = struct.unpack_from(">" + FORMAT_OF_TYPE[kind], encoded, at)
        expected = len(decoded.body) if field == "body_length" else getattr(decoded, field)
        assert value == expected, field
        names.add(field)
    assert names >= {*FIELDS, "total_size", "magic", "body_crc", "sys_flag", "body_length"}
    assert encoded[48 : 48 + lengths["B"]] == encode_host(born_host)
    assert decoded.born_host == born_host
    assert decoded.store_host == store_host


def test_sizes_are_the_formats() -> None:
    """Named sizes and positions agree with the structs they summarise."""
    assert consume_entry.LAYOUT.size == consume_entry.UNIT_SIZE == 20
    assert index.HEADER.size == index.HEADER_SIZE == 40
    assert index.ENTRY.size == index.ENTRY_SIZE
    assert extension_entry.LAYOUT.size == extension_entry.ENTRY_SIZE_MIN
    assert record_layout.BLANK.size == record_layout.BLANK_SIZE
    assert record_layout.HEAD.size == record_layout.BORN_HOST_POSITION
    assert len(property_crc_trailer(0)) == property_crc.PROPERTY_CRC_SIZE
    assert len(encode_record(topic="", queue_id=0, body=b"")) == record_layout.RECORD_SIZE_MIN == 91


def test_checkpoint_regions_are_sectors_of_their_own() -> None:
    """No two regions of the page share a 512-byte sector, and all lie inside the page."""
    regions = [
        (0, checkpoint.BROKER_LAYOUT.size),
        (checkpoint.WRITER_LIVE_POSITION, checkpoint.WRITER_LIVE_LAYOUT.size),
        (checkpoint.INDEXER_LIVE_POSITION, checkpoint.INDEXER_LIVE_LAYOUT.size),
        *((at, checkpoint.WRITER_SLOT_LAYOUT.size) for at in checkpoint.WRITER_SLOT_POSITIONS),
        *((at, checkpoint.INDEXER_SLOT_LAYOUT.size) for at in checkpoint.INDEXER_SLOT_POSITIONS),
    ]
    sectors = [at // 512 for at, _ in regions]
    assert len(set(sectors)) == len(sectors)
    assert all(at % 512 == 0 and size <= 512 for at, size in regions)
    assert max(sectors) < checkpoint.PAGE_SIZE // 512
