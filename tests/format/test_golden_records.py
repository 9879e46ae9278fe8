"""Every record that a real broker wrote, read with nothing but the format functions."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import STORES, golden_dump, golden_store
from plain_reader import in_dumps_shape, records_of, units_of
from plain_records import property_crc_trailer
from record_examples import encode_again

from storage.format.config_json import decode_config, encode_config, integer_keyed
from storage.format.consume_entry import record_tag_code
from storage.format.extension_entry import LAYOUT, decode_address, decode_extension, is_address
from storage.format.hosts import encode_host
from storage.format.index import HEADER_SIZE, IndexHeader
from storage.format.message_id import OffsetMessageId, decode_message_id
from storage.format.names import index_file_name, parse_file_name
from storage.format.property_crc import (
    CRC_MASK,
    PROPERTY_CRC_SIZE,
    has_property_crc,
)
from storage.format.record import body_crc, decode_record


@pytest.mark.parametrize("name", STORES)
def test_every_field_of_every_record(name: str) -> None:
    """Our decoding of each record has the fields and values of the broker's, none left over."""
    expected = {
        line["commitLogOffset"]: line
        for line in golden_dump(name)
        if line["type"] in ("message", "unqueued")
    }
    begin = min(expected)
    found = 0
    for commit_offset, raw in records_of(golden_store(name)):
        if commit_offset < begin:
            continue
        line = dict(expected.pop(commit_offset))
        record = decode_record(raw)
        queue_only = {"type", "tagsCode", "ext", "servedAs"}
        ours = in_dumps_shape(record, raw)
        if "servedAs" in line:  # one record in several queues; the dump has it once more there
            line["topic"] = ours["topic"]
        assert ours == {k: v for k, v in line.items() if k not in queue_only}
        assert decode_message_id(ours["offsetMsgId"]) == OffsetMessageId(
            record.store_host, commit_offset
        )
        found += 1
    assert not expected
    assert found


@pytest.mark.parametrize("name", STORES)
def test_every_record_encodes_to_its_own_bytes(name: str) -> None:
    """Decoding a broker's record and encoding it again gives the broker's bytes."""
    for _, raw in records_of(golden_store(name)):
        record = decode_record(raw)
        assert encode_again(record) == raw
        assert record.decoded_body() is not None
        assert body_crc(record.body) == record.body_crc
        if has_property_crc(record.properties_block):
            crc = zlib.crc32(raw[:-PROPERTY_CRC_SIZE]) & CRC_MASK
            assert raw.endswith(property_crc_trailer(crc))


@pytest.mark.parametrize("name", sorted(set(STORES) - {"ext", "lmq"}))
def test_every_unit_is_what_its_record_says(name: str) -> None:
    """Place, size and tag code of each unit follow from the record that it points to."""
    store = golden_store(name)
    records = {offset: decode_record(raw) for offset, raw in records_of(store)}
    count = 0
    for topic, queue_id, queue_offset, commit_offset, size, code in units_of(store):
        record = records.get(commit_offset)
        if record is None:
            assert commit_offset < min(records)
            continue
        assert (record.topic, record.queue_id, record.queue_offset) == (
            topic, queue_id, queue_offset,
        )  # fmt: skip
        assert record.total_size == size
        assert record_tag_code(topic, record.properties, record.store_timestamp_ms) == code
        count += 1
    assert count


def test_every_extension_entry_of_the_broker() -> None:
    """Units of the store with extensions hold addresses of entries with the record's own values."""
    store = golden_store("ext")
    lines = {
        (line["topic"], line["queueId"], line["queueOffset"]): line
        for line in golden_dump("ext")
        if line["type"] == "message"
    }
    for topic, queue_id, queue_offset, _, _, code in units_of(store):
        assert is_address(code)
        files = {
            parse_file_name(path.name): path.read_bytes()
            for path in (store / "consumequeue_ext" / topic / str(queue_id)).iterdir()
        }
        position = decode_address(code)
        start = max(offset for offset in files if offset is not None and offset <= position)
        entry = decode_extension(files[start], position - start)
        assert entry is not None
        line = lines.pop((topic, queue_id, queue_offset))
        assert line["ext"] == {
            "size": entry.size,
            "tagsCode": entry.tag_code,
            "msgStoreTime": entry.store_timestamp_ms,
            **({"filterBitMap": entry.bitmap.hex()} if entry.bitmap else {}),
        } or (not entry.bitmap and line["ext"].get("filterBitMap") in ("", None))
        head = LAYOUT.pack(entry.size, entry.tag_code, entry.store_timestamp_ms, len(entry.bitmap))
        found = files[start][position - start : position - start + entry.size]
        assert head + entry.bitmap == found
    assert not lines


@pytest.mark.parametrize("name", sorted(set(STORES) - {"killed", "poolkilled", "syncflushkilled"}))
def test_every_index_header(name: str) -> None:
    """Headers of index files have the values of the dump, and encode to the same bytes."""
    lines = {line["name"]: line for line in golden_dump(name) if line["type"] == "index"}
    for path in sorted((golden_store(name) / "index").iterdir()):
        with path.open("rb") as file:
            raw = file.read(HEADER_SIZE)
        header = IndexHeader.decode(raw)
        line = lines.pop(path.name)
        assert header == IndexHeader(
            line["beginTimestamp"],
            line["endTimestamp"],
            line["beginPhyOffset"],
            line["endPhyOffset"],
            line["hashSlotCount"],
            line["indexCount"],
        )
        assert header.encode() == raw
        assert len(path.name) == len(index_file_name(header.begin_timestamp_ms)) == 17
    assert not lines


def config_files() -> Iterator[Any]:
    for name in STORES:
        for path in sorted((golden_store(name) / "config").iterdir()):
            if path.name.partition(".")[2].startswith("json"):
                yield pytest.param(path, id=f"{name}/{path.name}")


@pytest.mark.parametrize("path", list(config_files()))
def test_every_configuration_file_byte_for_byte(path: Path) -> None:
    """A broker's configuration file decodes, and encodes to the same bytes."""
    data = path.read_bytes()
    assert encode_config(decode_config(data)) == data


@pytest.mark.parametrize("name", STORES)
def test_consumer_offsets_are_the_brokers(name: str) -> None:
    """Offsets decode to the table that the broker printed."""
    (line,) = (line for line in golden_dump(name) if line["type"] == "consumerOffsets")
    config = golden_store(name) / "config"
    paths = [config / "lmqConsumerOffset.json", config / "consumerOffset.json"]
    path = next((path for path in paths if path.exists()), None)
    table = decode_config(path.read_bytes())["offsetTable"] if path else {}
    ours = {key: integer_keyed(offsets) for key, offsets in table.items()}
    assert ours == {key: integer_keyed(offsets) for key, offsets in line["table"].items()}


def test_hosts_of_every_record_encode_back() -> None:
    """Host texts as a broker prints them are accepted, IPv6 among them."""
    hosts = {
        line[field]
        for line in itertools.chain(golden_dump("features"), golden_dump("basic"))
        if line["type"] == "message"
        for field in ("bornHost", "storeHost")
    }
    assert {len(encode_host(host)) for host in hosts} == {8, 20}
