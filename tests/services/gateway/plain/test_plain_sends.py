"""Plain sends: the record and the answer are those of the long way, and what that refuses is not plain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from steps_to_try import examples_to_try

from services.gateway.messages.plain_sends.request_kernels import (
    REQUEST_SIZE_MAX,
    TEXTS_MAX,
    USER_COUNT_MAX,
)
from services.gateway.messages.plain_sends.sends import PlainSends, answer_of
from services.gateway.messages.sent_messages import (
    Stamp,
    check_message,
    record_of,
    topic_of_messages,
)
from services.gateway.messages.statuses import OK
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from storage.format.names import topic_name_problem
from storage.format.record import decode_record

NOW_MS = 1_700_000_000_123
BORN_HOST = "10.0.0.7:51234"
STAMP = Stamp("DefaultCluster", 100_000)
BODY_MAX = STAMP.body_bytes_max

visible = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
any_text = st.text(max_size=12) | visible
names_of_properties = (
    st.sampled_from(
        ["", "a", "TAGS", "__SHARDINGKEY", "__RMQ.TRANSIENT.x", "TRACE_CONTEXT", "INNER_BASE"]
    )
    | any_text
)


@st.composite
def messages(draw: st.DrawFn) -> v2.Message:
    """Messages, most of them nearly plain."""
    message = v2.Message(body=draw(st.binary(max_size=300)))
    message.topic.name = draw(st.sampled_from(["t", "orders-%|_9", "x" * 127]))
    system = message.system_properties
    system.message_id = draw(visible)
    system.message_type = v2.NORMAL
    rarely = st.integers(0, 7).map(lambda number: number == 0)
    often = st.booleans()
    if draw(often):
        system.tag = draw(visible if draw(often) else any_text)
    system.keys.extend(draw(st.lists(visible if draw(often) else any_text, max_size=3)))
    for name, value in draw(st.dictionaries(names_of_properties, any_text, max_size=3)).items():
        message.user_properties[name] = value
    if draw(often):
        system.born_timestamp.seconds = draw(st.integers(-2, 300_000_000_000))
        system.born_timestamp.nanos = draw(st.integers(-2, 1_000_000_000))
    if draw(often):
        system.born_host = draw(any_text)
    if draw(often):
        system.trace_context = draw(any_text)
    if draw(often):
        system.body_encoding = draw(st.integers(0, 4))  # type: ignore[assignment]
    if draw(often):
        system.body_digest.type = draw(st.integers(0, 3))  # type: ignore[assignment]
        system.body_digest.checksum = draw(any_text)
    if draw(often):
        system.queue_id = draw(st.integers(-1, 9))
    if draw(rarely):
        system.message_group = draw(any_text)
    if draw(rarely):
        system.delivery_timestamp.seconds = draw(st.integers(0, 2_000_000_000))
    if draw(rarely):
        system.delivery_attempt = draw(st.integers(0, 3))
    if draw(rarely):
        system.message_type = draw(st.integers(0, 6))  # type: ignore[assignment]
    rare = v2.Message(
        topic=v2.Resource(resource_namespace="n"),
        system_properties=v2.SystemProperties(store_host="h", receipt_handle="r"),
    )
    if draw(rarely):
        message.MergeFrom(rare)
    return message


def sent(message: v2.Message) -> v2.Message:
    """Return a small message that is plain, with some fields changed."""
    plain = v2.Message(body=b"body")
    plain.topic.name = "t"
    plain.system_properties.message_id = "01AB"
    plain.system_properties.message_type = v2.NORMAL
    plain.MergeFrom(message)
    return plain


def request_of(*several: v2.Message) -> bytes:
    return service_pb2.SendMessageRequest(messages=several).SerializeToString()


def long_way(request: bytes) -> bytes:
    """Return the record that protobuf's way makes. Raises CallRefused."""
    parsed = service_pb2.SendMessageRequest.FromString(request).messages
    topic = topic_of_messages(parsed)
    check_message(parsed[0], [v2.NORMAL], BODY_MAX)
    return record_of(parsed[0], topic, 3, born_host=BORN_HOST, now_ms=NOW_MS, stamp=STAMP)


def short_way(request: bytes, plain: PlainSends | None = None) -> bytes | None:
    plain = plain or PlainSends(STAMP)
    topic = plain.read(request, born_host=BORN_HOST)
    if topic is None:
        return None
    return plain.record(topic, 3, now_ms=NOW_MS)


def in_parts(record: bytes) -> tuple[Any, ...]:
    """Return all that a record says; user properties have no order, in a map."""
    decoded = decode_record(record, 0)
    properties_at = record.index(b"UNIQ_KEY\x01")
    return record[12:properties_at], sorted(record[properties_at:].split(b"\x02")), decoded.body


@settings(max_examples=examples_to_try(600, 3))
@given(messages())
@example(sent(v2.Message()))
def test_a_plain_send_becomes_the_record_of_the_long_way(message: v2.Message) -> None:
    request = request_of(message)
    record = short_way(request)
    if record is not None:
        assert in_parts(record) == in_parts(long_way(request))


@settings(max_examples=examples_to_try(300, 2))
@given(messages(), st.data())
def test_bytes_that_are_changed_anywhere_are_never_read_as_another_message(
    message: v2.Message, data: st.DataObject
) -> None:
    """A flipped byte gives the same record as protobuf makes of it, or is left to protobuf."""
    request = bytearray(request_of(message))
    at = data.draw(st.integers(0, len(request) - 1))
    request[at] = data.draw(st.integers(0, 255))
    for changed in (bytes(request), bytes(request[:at])):
        plain = PlainSends(STAMP)
        topic = plain.read(changed, born_host=BORN_HOST)
        if topic is not None and not topic_name_problem(topic):  # else there is no such topic
            record = plain.record(topic, 3, now_ms=NOW_MS)
            assert record is not None
            assert in_parts(record) == in_parts(long_way(changed))


@pytest.mark.parametrize(
    "changed",
    [
        v2.Message(),
        v2.Message(user_properties={"colour": "red, green", "size": "9"}),
        v2.Message(
            system_properties=v2.SystemProperties(
                tag="a", keys=["k1", "k2"], born_host="host name", trace_context="00-ab", queue_id=7,
                body_encoding=v2.GZIP, body_digest=v2.Digest(type=v2.CRC32, checksum="AB"),
            )
        ),
    ],
)  # fmt: skip
def test_what_clients_send_is_plain(changed: v2.Message) -> None:
    message = sent(changed)
    message.system_properties.born_timestamp.FromMilliseconds(NOW_MS - 5)
    request = request_of(message)
    record = short_way(request)
    assert record is not None
    assert in_parts(record) == in_parts(long_way(request))


@pytest.mark.parametrize(
    "changed",
    [
        v2.Message(system_properties=v2.SystemProperties(tag="a|b")),
        v2.Message(system_properties=v2.SystemProperties(tag="")),
        v2.Message(system_properties=v2.SystemProperties(keys=[""])),
        v2.Message(system_properties=v2.SystemProperties(message_group="g")),
        v2.Message(system_properties=v2.SystemProperties(message_type=v2.TRANSACTION)),
        v2.Message(system_properties=v2.SystemProperties(message_id="a\tb")),
        v2.Message(system_properties=v2.SystemProperties(message_id="é")),
        v2.Message(system_properties=v2.SystemProperties(delivery_attempt=1)),
        v2.Message(user_properties={"UNIQ_KEY": "x"}),
        v2.Message(user_properties={"__SHARDINGKEY": "x"}),
        v2.Message(user_properties={"a": "x\x02y"}),
        v2.Message(user_properties={str(n): "x" for n in range(USER_COUNT_MAX + 1)}),
        v2.Message(user_properties={"a": "x" * TEXTS_MAX}),
        v2.Message(system_properties=v2.SystemProperties(keys=["x" * TEXTS_MAX])),
        v2.Message(system_properties=v2.SystemProperties(message_id="x" * (TEXTS_MAX + 1))),
        v2.Message(body=b"x" * (BODY_MAX + 1)),
        v2.Message(body=b"x" * REQUEST_SIZE_MAX),
    ],
)
def test_what_may_be_refused_is_not_plain(changed: v2.Message) -> None:
    assert short_way(request_of(sent(changed))) is None


def test_nothing_is_left_of_the_request_before() -> None:
    plain = PlainSends(STAMP)
    rich = sent(
        v2.Message(
            user_properties={"a": "1"},
            system_properties=v2.SystemProperties(tag="tag", keys=["k"], born_host="h"),
        )
    )
    bare = request_of(sent(v2.Message()))
    assert short_way(request_of(rich), plain) is not None
    assert short_way(bare, plain) == short_way(bare) == long_way(bare)


@pytest.mark.parametrize("offset", [-1, 0, 1, 127, 128, 1 << 40])
@pytest.mark.parametrize("message_id", [b"1", b"A" * 34, b"B" * 4000])
def test_an_answer_is_what_protobuf_writes(message_id: bytes, offset: int) -> None:
    identity = message_id.decode()
    entry = service_pb2.SendResultEntry(
        status=OK, message_id=identity, transaction_id=identity, offset=offset
    )
    wanted = service_pb2.SendMessageResponse(status=OK, entries=[entry])
    assert answer_of(message_id, offset) == wanted.SerializeToString()
