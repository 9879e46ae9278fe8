"""Any record that a store can hold is delivered, whatever stands in it."""

from __future__ import annotations

import gzip
import zlib

import pytest
from plain_records import encode_record

from services.gateway.messages.delivered_messages import fill_message
from services.gateway.v2 import definition_pb2 as v2
from storage.format.properties import encode_properties
from storage.format.record import Record, decode_record

TOPIC = v2.Resource(name="orders")
_OF_2024 = 1_704_067_200_000


def record(**changes: object) -> Record:
    fields: dict[str, object] = {
        "topic": "orders",
        "queue_id": 0,
        "body": b"hello",
        "born_timestamp_ms": _OF_2024,
        "store_timestamp_ms": _OF_2024,
        "store_host": "10.0.0.1:10911",
        **changes,
    }
    return decode_record(encode_record(**fields))  # type: ignore[arg-type]


def delivered(**changes: object) -> v2.Message:
    message = v2.Message()
    fill_message(message, record(**changes), TOPIC, receipt_handle="h", attempt=1)
    return message


@pytest.mark.parametrize("born_ms", [-1, -(1 << 63), (1 << 63) - 1, 1 << 50])
def test_a_time_that_the_wire_cannot_say_is_its_nearest(born_ms: int) -> None:
    message = delivered(born_timestamp_ms=born_ms)

    born = message.system_properties.born_timestamp.ToMilliseconds()
    assert born == (0 if born_ms < 0 else 253_402_300_799_999)


@pytest.mark.parametrize("deliver", ["", "x", "-1", "9" * 30, "\u0663"])
def test_a_delivery_time_that_is_no_time_is_left_out(deliver: str) -> None:
    block = encode_properties({"TIMER_DELIVER_MS": deliver})

    assert not delivered(properties_block=block).system_properties.HasField("delivery_timestamp")


def test_without_a_unique_key_the_offset_id_is_the_id() -> None:
    assert (
        delivered(commit_offset=7).system_properties.message_id
        == "0A00000100002A9F0000000000000007"
    )


def test_a_gzip_body_stays_compressed_and_other_compressions_are_opened() -> None:
    for body, encoding, expected in (
        (gzip.compress(b"hello"), v2.GZIP, gzip.compress(b"hello")),
        (zlib.compress(b"hello"), v2.IDENTITY, b"hello"),
    ):
        message = delivered(body=body, sys_flag=1)

        assert (message.system_properties.body_encoding, message.body[-8:]) == (
            encoding,
            expected[-8:],
        )


@pytest.mark.parametrize("body", [b"not compressed at all", zlib.compress(bytes(33 << 20))])
def test_what_cannot_be_opened_is_never_handed_out_as_plain(body: bytes) -> None:
    """A client that is told GZIP finds it corrupted; one that is told IDENTITY would take it for the message."""
    message = delivered(body=body, sys_flag=0x301)

    assert message.body == body
    assert message.system_properties.body_encoding == v2.GZIP


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, v2.NORMAL),
        ({"__SHARDINGKEY": "g"}, v2.FIFO),
        ({"DELAY": "3", "__SHARDINGKEY": "g"}, v2.DELAY),
        ({"TRAN_MSG": "true", "DELAY": "3"}, v2.TRANSACTION),
        ({"TRAN_MSG": "false"}, v2.NORMAL),
    ],
)
def test_the_type_is_that_of_the_first_property_that_says_it(
    properties: dict[str, str], kind: int
) -> None:
    message = delivered(properties_block=encode_properties(properties))

    assert message.system_properties.message_type == kind
