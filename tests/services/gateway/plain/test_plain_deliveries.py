"""Plain deliveries: the answer's message is the one of the long way, whatever the record says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from steps_to_try import examples_to_try

from penstock.v1 import leases_pb2
from services.gateway.messages.delivered_messages import message_of
from services.gateway.messages.plain_deliveries import deliveries
from services.gateway.messages.plain_deliveries.deliveries import Deliveries
from services.gateway.messages.plain_deliveries.fields import FIELD_COUNT, RECORD_SIZE_MAX
from services.gateway.messages.plain_deliveries.record_kernels import read_delivery
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from storage.format.properties import encode_properties
from storage.format.record import MalformedRecord, decode_record, encode_record

TOPIC = v2.Resource(name="orders", resource_namespace="n")
NOW_MS = 1_700_000_000_123
PLAIN = {"UNIQ_KEY": "01AB", "KEYS": "a b", "TAGS": "t", "colour": "red, green", "__BORNHOST": "x"}

printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=12)
any_text = printable | st.text(st.characters(exclude_characters="\1\2", codec="utf-8"), max_size=6)
names = st.sampled_from(
    [
        "KEYS", "TAGS", "__BORNHOST", "__SHARDINGKEY", "TRACE_CONTEXT", "CLUSTER", "PGROUP", "DELAY", "TRAN_MSG",
        "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__RMQ.TRANSIENT.a",
        "INNER_BASE", "BORN_TIMESTAMP", "RECONSUME_TIME", "a", "bb",
    ]
) | any_text.filter(bool)  # fmt: skip
times = st.sampled_from([0, 1, NOW_MS, -1, 253_402_300_799_999, 253_402_300_800_000, 1 << 62])
blocks = st.dictionaries(names, any_text, max_size=6).map(encode_properties)


def record(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "topic": "orders",
        "queue_id": 3,
        "queue_offset": 77,
        "body": b"hello",
        "properties_block": encode_properties(PLAIN),
        "born_timestamp_ms": NOW_MS,
        "store_timestamp_ms": NOW_MS + 1,
        "born_host": "10.0.0.7:51234",
        "store_host": "192.168.255.1:10911",
        **changes,
    }
    return encode_record(**fields)


def received(records: list[bytes]) -> leases_pb2.ReceiveResponse:
    return leases_pb2.ReceiveResponse(
        record_count=len(records),
        records=b"".join(records),
        receipt_handles="".join(
            f"{place}".ljust(64, "h") for place in range(len(records))
        ).encode(),
        attempts=range(1, len(records) + 1),
    )


def short_way(records: list[bytes]) -> list[v2.Message]:
    answers = Deliveries().answers(received(records), TOPIC)
    return [service_pb2.ReceiveMessageResponse.FromString(answer).message for answer in answers]


def long_way(records: list[bytes]) -> list[v2.Message]:
    return [
        message_of(
            decode_record(each), TOPIC, receipt_handle=f"{place}".ljust(64, "h"), attempt=place + 1
        )
        for place, each in enumerate(records)
    ]


def is_plain(data: bytes) -> bool:
    return read_delivery(np.frombuffer(data, np.uint8), 0, np.zeros(FIELD_COUNT, np.int64))


records_of_any_kind = st.builds(
    record,
    body=st.binary(max_size=200),
    queue_id=st.sampled_from([0, 1, 1 << 30]),
    queue_offset=st.sampled_from([0, 127, 128, 1 << 40]),
    properties_block=st.builds(
        lambda identity, block: identity + block,
        st.sampled_from([encode_properties({"UNIQ_KEY": "01AB"}), b""]),
        blocks
        | st.binary(max_size=30)
        | st.lists(blocks, min_size=2, max_size=3).map(b"".join),  # names come again
    ),
    born_timestamp_ms=times,
    store_timestamp_ms=times,
    born_host=st.sampled_from(["10.0.0.7:1", "255.255.255.255:65535", "[2001:db8::7]:9"]),
    store_host=st.sampled_from(["0.0.0.0:0", "192.168.1.9:10911", "[::1]:9"]),
    sys_flag=st.sampled_from([0, 0, 0, 1, 4, 8]),
)


@settings(max_examples=examples_to_try(500, 8))
@given(st.lists(records_of_any_kind, max_size=4))
@example([record()])
def test_what_is_delivered_is_what_the_long_way_delivers(records: list[bytes]) -> None:
    assert short_way(records) == long_way(records)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"body": b""},
        {"properties_block": encode_properties({"UNIQ_KEY": "1", "__SHARDINGKEY": "group"})},
        {
            "properties_block": encode_properties(
                {"UNIQ_KEY": "1", "KEYS": " a  b ", "x": "y" * 300}
            )
        },
        {"body": b"x" * 100_000},
    ],
)
def test_what_clients_sent_is_plain(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And needs no protobuf object."""
    data = record(**changes)
    assert is_plain(data)
    wanted = long_way([data])
    monkeypatch.setattr(deliveries, "decode_record", None)
    assert short_way([data]) == wanted


@pytest.mark.parametrize(
    "changes",
    [
        {"properties_block": encode_properties({"KEYS": "a"})},
        {"properties_block": encode_properties(PLAIN | {"DELAY": "3"})},
        {"properties_block": encode_properties(PLAIN | {"TRAN_MSG": "true"})},
        {"properties_block": encode_properties(PLAIN | {"DLQ_ORIGIN_TOPIC": "t"})},
        {"properties_block": encode_properties(PLAIN | {"a": "é"})},
        {"properties_block": encode_properties(PLAIN)[:-1]},
        {"sys_flag": 1},
        {"born_host": "[::1]:9"},
        {"store_host": "[::1]:9"},
        {"born_timestamp_ms": -1},
        {"topic": "x" * 200},
        {"body": b"x" * RECORD_SIZE_MAX},
    ],
)
def test_what_is_not_plain_is_left_to_protobuf(changes: dict[str, Any]) -> None:
    data = record(**changes)
    assert not is_plain(data)
    assert short_way([data]) == long_way([data])


def test_a_record_that_is_cut_is_not_plain() -> None:
    data = record()
    assert not any(is_plain(data[:size]) for size in range(len(data)))


@given(st.data())
def test_a_changed_byte_never_reads_beyond_the_record(data: st.DataObject) -> None:
    changed = bytearray(record())
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] = data.draw(st.integers(0, 255))
    fields = np.zeros(FIELD_COUNT, np.int64)
    if read_delivery(np.frombuffer(bytes(changed), np.uint8), 0, fields):
        [delivered] = short_way([bytes(changed)])
        try:
            [wanted] = long_way([bytes(changed)])
        except (
            MalformedRecord
        ):  # by its topic, which no message has: it is the one that was asked for
            return
        assert delivered == wanted
