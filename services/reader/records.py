"""Stored records as decoded messages of the contract."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.v1 import common_pb2
from storage.errors import DamagedRecord
from storage.format import properties as names
from storage.format.message_id import encode_message_id
from storage.format.record import Record, decode_record


def record_message(record: Record) -> common_pb2.Record:
    """Return a record with its body decompressed; DamagedRecord if that fails."""
    properties = record.properties
    try:
        body = record.decoded_body()
    except ValueError as error:
        raise DamagedRecord(record.commit_offset, record.total_size, str(error)) from error
    return common_pb2.Record(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_offset=record.commit_offset,
        size=record.total_size,
        body=body,
        properties=properties,
        keys=properties.get(names.KEYS, "").split(),
        tag=properties.get(names.TAGS, ""),
        unique_key=properties.get(names.UNIQ_KEY, ""),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        message_id=encode_message_id(record.store_host, record.commit_offset),
    )


def decode_slices(
    slices: Iterable[memoryview],
) -> tuple[list[common_pb2.Record], Sequence[common_pb2.DamagedRecord]]:
    """Decode every record of some slices; those that do not decompress come back as damaged."""
    decoded: list[common_pb2.Record] = []
    damaged: list[common_pb2.DamagedRecord] = []
    for view in slices:
        position = 0
        while position < len(view):
            record = decode_record(view, position)
            position += record.total_size
            try:
                decoded.append(record_message(record))
            except DamagedRecord as error:
                damaged.append(
                    common_pb2.DamagedRecord(
                        queue_offset=record.queue_offset,
                        commit_offset=record.commit_offset,
                        size=record.total_size,
                        reason=error.reason,
                    )
                )
    return decoded, damaged
