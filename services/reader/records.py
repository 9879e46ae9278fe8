"""Stored records as decoded messages of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.v1 import common_pb2
from storage.errors import UnreadableBody
from storage.format import properties as names
from storage.format.message_id import encode_message_id
from storage.format.record import Record, decode_record
from storage.message import KeyQueryResult, PullResult


def record_message(record: Record) -> common_pb2.Record:
    """Return a record with its body decompressed, or as it is stored if that fails."""
    properties = record.properties
    problem = ""
    try:
        body = record.decoded_body()
    except UnreadableBody as error:
        body, problem = record.body, str(error)
    return common_pb2.Record(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_offset=record.commit_offset,
        size=record.total_size,
        body=body,
        properties=properties,
        keys=names.split_keys(properties.get(names.KEYS, "")),
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
        body_problem=problem,
    )


Answer = TypeVar("Answer", PullResult, KeyQueryResult)


def ask_decoded(
    ask: Callable[[int], Answer], max_messages: int, *, bytes_max: int
) -> tuple[Answer, list[common_pb2.Record]]:
    """Return an answer of at most so many messages, and its records with ``bytes_max`` of bodies.

    What was compressed may be much longer: then it is asked again for fewer. One is always taken.
    """
    while True:
        answer = ask(max_messages)
        decoded = decode_slices(answer.slices, bytes_max=bytes_max)
        if len(decoded) == answer.record_count:
            return answer, decoded
        max_messages = len(decoded)


def decode_slices(slices: Iterable[memoryview], *, bytes_max: int) -> list[common_pb2.Record]:
    """Decode the first records of some slices: those whose bodies are ``bytes_max``, one always."""
    decoded: list[common_pb2.Record] = []
    total = 0
    for view in slices:
        position = 0
        while position < len(view):
            record = decode_record(view, position)
            position += record.total_size
            message = record_message(record)
            total += len(message.body)
            if decoded and total > bytes_max:
                return decoded
            decoded.append(message)
    return decoded
