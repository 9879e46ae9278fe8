"""What a client may send: one code for each rule, and the record that a broker's proxy would write."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.messages.queue_choice import consistent_hash, queue_of_message_group
from services.gateway.messages.sent_messages import (
    Stamp,
    check_message,
    record_of,
    topic_of_messages,
)
from services.gateway.messages.statuses import CallRefused
from services.gateway.messages.topic_types import accepted_types
from services.gateway.v2 import definition_pb2 as v2
from storage.format.record import decode_record

STAMP = Stamp("DefaultCluster", 4 << 20)


MIXED = accepted_types({"message.type": "MIXED"})


NORMAL = accepted_types({})


def message(**changes: object) -> v2.Message:
    """A message that breaks no rule, with changes of its system properties."""
    system = {
        "message_id": "01ABCDEF",
        "message_type": v2.NORMAL,
        "body_encoding": v2.IDENTITY,
        "born_host": "client-7",
        **changes,
    }
    made = v2.Message(
        topic=v2.Resource(name="orders"),
        body=b"hello",
        system_properties=v2.SystemProperties(**system),
    )
    made.system_properties.born_timestamp.FromMilliseconds(1_795_390_149_123)
    return made


def changed(change: Callable[[v2.Message], object], **system: object) -> v2.Message:
    made = message(**system)
    change(made)
    return made


def with_property(name: str, value: str) -> v2.Message:
    return changed(lambda made: made.user_properties.update({name: value}))


def with_properties(count: int, size: int) -> v2.Message:
    return changed(
        lambda made: made.user_properties.update({f"n{i}": "x" * size for i in range(count)})
    )


REFUSED = [
    (changed(lambda made: made.ClearField("body")), v2.MESSAGE_BODY_EMPTY),
    (
        changed(lambda made: setattr(made, "body", b"x" * ((4 << 20) + 1))),
        v2.MESSAGE_BODY_TOO_LARGE,
    ),
    (with_property("TIMER_DELIVER_MS", "1"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (with_property("UNIQ_KEY", "1"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (with_property("__transactionId__", "1"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (with_property(" ", "1"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (with_property("a\x01b", "1"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (with_property("a", "1\x02KEYS\x01forged"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (with_properties(129, 1), v2.MESSAGE_PROPERTIES_TOO_LARGE),
    (with_properties(2, 9_000), v2.MESSAGE_PROPERTIES_TOO_LARGE),
    (message(tag=""), v2.ILLEGAL_MESSAGE_TAG),
    (message(tag="a|b"), v2.ILLEGAL_MESSAGE_TAG),
    (message(tag="a\n"), v2.ILLEGAL_MESSAGE_TAG),
    (message(keys=["k", " "]), v2.ILLEGAL_MESSAGE_KEY),
    (message(keys=["k\x02"]), v2.ILLEGAL_MESSAGE_KEY),
    (message(message_type=v2.FIFO, message_group=""), v2.ILLEGAL_MESSAGE_GROUP),
    (message(message_type=v2.FIFO, message_group="g" * 64), v2.ILLEGAL_MESSAGE_GROUP),
    (message(message_id=" "), v2.ILLEGAL_MESSAGE_ID),
    (message(born_host="a\x01b"), v2.BAD_REQUEST),
    (message(message_type=v2.PRIORITY), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (message(message_type=0), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (message(message_type=99), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
]


@pytest.mark.parametrize(("sent", "code"), REFUSED)
def test_a_message_that_breaks_a_rule_is_refused_with_its_code(sent: v2.Message, code: int) -> None:
    with pytest.raises(CallRefused) as caught:
        check_message(sent, MIXED, STAMP.body_bytes_max)

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("sent", "accepted"),
    [
        (message(message_type=v2.FIFO, message_group="g"), NORMAL),
        (message(), accepted_types({"message.type": "FIFO"})),
        (message(message_type=v2.TRANSACTION), NORMAL),
    ],
)
def test_a_type_that_the_topic_does_not_take_is_refused(
    sent: v2.Message, accepted: tuple[v2.MessageType, ...]
) -> None:
    with pytest.raises(CallRefused) as caught:
        check_message(sent, accepted, STAMP.body_bytes_max)

    assert caught.value.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_the_largest_message_of_every_kind_is_taken() -> None:
    sent = message(message_type=v2.FIFO, message_group="g" * 63, tag="t", keys=["k"] * 3)
    sent.body = b"x" * (4 << 20)
    sent.user_properties.update({f"n{i}": "x" * 100 for i in range(128)})

    check_message(sent, MIXED, STAMP.body_bytes_max)


def test_messages_of_two_topics_and_none_are_refused() -> None:
    other = message()
    other.topic.name = "others"
    for messages in ([], [message(), other]):
        with pytest.raises(CallRefused) as caught:
            topic_of_messages(messages)
        assert caught.value.code == v2.MESSAGE_CORRUPTED


def test_a_record_has_the_properties_that_a_proxy_writes() -> None:
    sent = message(
        message_type=v2.FIFO, message_group="g", tag="paid", keys=["a", "b"], trace_context="00-1"
    )
    sent.user_properties["colour"] = "red"
    sent.user_properties["empty"] = ""
    record = decode_record(
        record_of(sent, "orders", 3, born_host="10.0.0.7:5", now_ms=1, stamp=STAMP)
    )

    found = record.properties
    found.pop("__CRC32#", None)
    assert found == {
        "UNIQ_KEY": "01ABCDEF", "KEYS": "a b", "TAGS": "paid", "colour": "red", "__SHARDINGKEY": "g",
        "BORN_TIMESTAMP": "1795390149123", "__BORNHOST": "client-7", "TRACE_CONTEXT": "00-1",
        "RECONSUME_TIME": "0", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster", "PGROUP": "orders",
    }  # fmt: skip
    assert (record.topic, record.queue_id, record.body, record.sys_flag) == (
        "orders",
        3,
        b"hello",
        0,
    )
    assert (record.born_timestamp_ms, record.born_host) == (1_795_390_149_123, "10.0.0.7:5")


@pytest.mark.parametrize("seconds", [-1, 1 << 62, -(1 << 62), 1 << 50])
def test_a_clock_that_no_record_could_hold_is_not_believed(seconds: int) -> None:
    sent = message()
    sent.system_properties.born_timestamp.seconds = seconds
    record = decode_record(
        record_of(sent, "orders", 0, born_host="10.0.0.7:5", now_ms=77, stamp=STAMP)
    )

    assert (record.born_timestamp_ms, record.properties["BORN_TIMESTAMP"]) == (77, "77")


# Of Guava's own tests: values 0 to 19 in 100 buckets, and large ones.
OF_100 = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]


LARGE = [
    (10863919174838991, 11, 6),
    (2016238256797177309, 11, 3),
    (1673758223894951030, 11, 5),
    (2, 100001, 80343),
    (2201, 100001, 22152),
    (2202, 100001, 15018),
]


def test_the_buckets_are_guavas() -> None:
    assert [consistent_hash(value, 100) for value in range(20)] == OF_100


@pytest.mark.parametrize(("value", "buckets", "bucket"), LARGE)
def test_large_values_and_counts_too(value: int, buckets: int, bucket: int) -> None:
    assert consistent_hash(value, buckets) == bucket


@given(st.text(min_size=1, max_size=63), st.integers(1, 200))
def test_one_queue_more_moves_a_group_there_or_nowhere(message_group: str, count: int) -> None:
    before = queue_of_message_group(message_group, count)
    after = queue_of_message_group(message_group, count + 1)

    assert 0 <= before < count
    assert after in (before, count)
