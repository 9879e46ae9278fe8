"""Records and units as the values that dumps and answers print, under a broker's names."""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import Any

from storage.format.message_id import encode_message_id
from storage.format.record import MalformedRecord, decode_record

Line = dict[str, Any]


def record_fields(record: memoryview) -> Line:
    """Return a record's fields; of bytes that are none, only how many there are."""
    try:
        decoded = decode_record(record)
    except MalformedRecord:
        return {"undecodable": len(record)}
    properties = decoded.properties
    return {
        "topic": decoded.topic,
        "queueId": decoded.queue_id,
        "queueOffset": decoded.queue_offset,
        "commitLogOffset": decoded.commit_offset,
        "size": decoded.total_size,
        "magic": f"{decoded.magic:08x}",
        "sysFlag": decoded.sys_flag,
        "flag": decoded.flag,
        "bodyCRC": decoded.body_crc,
        "bornTimestamp": decoded.born_timestamp_ms,
        "bornHost": decoded.born_host,
        "storeTimestamp": decoded.store_timestamp_ms,
        "storeHost": decoded.store_host,
        "reconsumeTimes": decoded.reconsume_times,
        "preparedTransactionOffset": decoded.prepared_transaction_offset,
        "properties": {name: properties[name] for name in sorted(properties, key=java_order)},
        "bodyLength": len(decoded.body),
        "bodySha256": sha256(decoded.body).hexdigest(),
        "offsetMsgId": encode_message_id(decoded.store_host, decoded.commit_offset),
        "recordCrc32": f"{zlib.crc32(record):08x}",
    }


def java_order(text: str) -> bytes:
    """Sort key of Java strings: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
