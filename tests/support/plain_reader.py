"""A store read with the format functions alone: slow, plain, and independent of the engine."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden import data_ranges
from plain_records import check_record

from storage.format.consume_entry import LAYOUT, PREFILL_SIZE, UNIT_SIZE
from storage.format.message_id import encode_message_id
from storage.format.names import file_name, parse_file_name
from storage.format.record import Record
from storage.format.stops import Stop


def records_of(store: Path) -> Iterator[tuple[int, bytes]]:
    """Commit offset and bytes of every record, walked file by file."""
    for path in sorted((store / "commitlog").iterdir()):
        start = parse_file_name(path.name)
        assert start is not None
        assert path.name == file_name(start)
        with path.open("rb") as file:
            ranges = data_ranges(file.fileno(), path.stat().st_size)
            file.seek(0)
            data = file.read(ranges[-1][1]) if ranges else b""
        at = 0
        while at < len(data) and (verdict := check_record(data, at, start + at)) is Stop.END:
            size = int.from_bytes(data[at : at + 4], "big")
            yield start + at, data[at : at + size]
            at += size
        assert at >= len(data) or verdict in (Stop.BLANK, Stop.ZERO), (path, at, verdict)


def in_dumps_shape(record: Record, raw: bytes) -> dict[str, Any]:
    """The fields of a dump's message line that come from the record's bytes."""
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.commit_offset,
        "size": record.total_size,
        "magic": f"{record.magic:08x}",
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCRC": record.body_crc,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": record.born_host,
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": record.store_host,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "properties": record.properties,
        "bodyLength": len(record.body),
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "offsetMsgId": encode_message_id(record.store_host, record.commit_offset),
        "recordCrc32": f"{zlib.crc32(raw):08x}",
    }


def units_of(store: Path) -> Iterator[tuple[str, int, int, int, int, int]]:
    """(topic, queue, queue offset, commit offset, size, tag code) of every unit that was written."""
    for path in sorted((store / "consumequeue").glob("*/*/*")):
        data = path.read_bytes()
        start = parse_file_name(path.name)
        assert start is not None
        for at in range(0, len(data), UNIT_SIZE):
            commit_offset, size, tag_code = LAYOUT.unpack_from(data, at)
            if commit_offset < 0 or size <= 0:
                assert data.count(0, at) == len(data) - at, path
                break
            if size != PREFILL_SIZE:
                yield (
                    path.parent.parent.name, int(path.parent.name), (start + at) // UNIT_SIZE,
                    commit_offset, size, tag_code,
                )  # fmt: skip
