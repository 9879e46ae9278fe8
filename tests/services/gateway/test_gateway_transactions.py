"""Transactions of RocketMQ's clients: half messages, their ends, and checks sent to connected producers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest
from messaging_bed import CLIENT, MessagingBed, ProducerStream
from real_processes import until

from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2

OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagingBed]:
    checks = {
        "transaction_timeout_ms": 300,
        "transaction_check_interval_ms": 300,
        "transaction_check_max": 100_000,  # a slow machine is asked for as long as it takes
    }
    with ExitStack() as stack:
        store = tmp_path_factory.mktemp("gateway") / "store"
        made = MessagingBed(store, stack, has_own_gateway=True, **checks)
        made.create("bills", 1, "TRANSACTION")
        made.create("mixed", 4, "MIXED")
        yield made


def half(topic: str, key: str, kind: int = v2.TRANSACTION) -> v2.Message:
    return v2.Message(
        topic=v2.Resource(name=topic),
        body=key.encode(),
        user_properties={"colour": "red"},
        system_properties=v2.SystemProperties(
            message_id=key, tag="t", keys=["k"], message_type=kind, body_encoding=v2.IDENTITY
        ),
    )


def check_counts(bed: MessagingBed) -> dict[str, int]:
    return {each.transaction_id: each.check_count for each in bed.client.pending_transactions()}


def test_a_transaction_is_stored_by_its_commit(bed: MessagingBed) -> None:
    bed.create("committed", 1, "TRANSACTION")
    (entry,) = bed.send_all(half("committed", "C1")).entries
    assert (entry.message_id, entry.transaction_id) == ("C1", "C1")
    assert bed.ends("committed") == {0: 0}
    assert bed.end("committed", "C1", v2.TRANSACTION_RESOLUTION_UNSPECIFIED) == v2.OK
    assert "C1" in check_counts(bed)
    assert bed.end("committed", "C1", v2.COMMIT) == v2.OK
    assert bed.end("committed", "C1", v2.COMMIT) == v2.OK
    assert bed.end("committed", "C1", v2.ROLLBACK) == v2.INVALID_TRANSACTION_ID
    produced = bed.send_all(half("mixed", "after", v2.NORMAL))
    assert produced.status.code == v2.OK
    until(lambda: bed.ends("committed") == {0: 1})


@pytest.mark.parametrize(
    ("topic", "key", "code"),
    [
        ("bills", "never sent", v2.INVALID_TRANSACTION_ID),
        ("bills", " ", v2.INVALID_TRANSACTION_ID),
        ("mixed", "B1", v2.INVALID_TRANSACTION_ID),
    ],
)
def test_an_end_that_makes_no_sense_is_refused(
    bed: MessagingBed, topic: str, key: str, code: int
) -> None:
    bed.send_all(half("bills", "B1"))
    assert bed.end(topic, key, v2.COMMIT) == code
    assert bed.end("bills", "B1", v2.ROLLBACK) == v2.OK


def test_a_connected_producer_of_the_topic_is_asked(bed: MessagingBed) -> None:
    bed.create("orphans", 2, "TRANSACTION")
    bed.send_all(half("orphans", "O1"))
    with ProducerStream(bed.channel, CLIENT[0][1], "orphans") as producer:
        asked = producer.asked()
        assert asked.transaction_id == "O1"
        assert (asked.message.topic.name, asked.message.body) == ("orphans", b"O1")
        assert asked.message.user_properties["colour"] == "red"
        system = asked.message.system_properties
        assert (system.message_id, system.tag, system.delivery_attempt) == ("O1", "t", 1)
        assert system.message_type == v2.TRANSACTION
        assert bed.end("orphans", "O1", v2.COMMIT) == v2.OK


def test_a_producer_that_does_not_read_keeps_no_other_from_its_checks(bed: MessagingBed) -> None:
    """Its own checks stay pending; it is asked when it reads again."""
    bed.create("unread", 1, "TRANSACTION")
    bed.create("read", 1, "TRANSACTION")
    keys = {f"U{number}" for number in range(4)}
    with (
        grpc.insecure_channel(bed.addresses["gateway"], options=OWN_CONNECTION) as channel,
        ProducerStream(channel, "silent", "unread") as silent,
        ProducerStream(bed.channel, "reads", "read") as reading,
    ):
        for key in keys:
            message = half("unread", key)
            message.body = bytes(2 << 20)
            assert bed.send_all(message).status.code == v2.OK
        asked: dict[str, int] = {}
        while asked != (
            now := check_counts(bed)
        ):  # until it is asked no more: its connection is full
            asked = now
            time.sleep(0.7)
        for number in range(2):
            bed.send_all(half("read", f"R{number}"))
            asked = reading.asked()
            while asked.transaction_id != f"R{number}":
                asked = reading.asked()
            assert bed.end("read", f"R{number}", v2.COMMIT) == v2.OK
        assert keys <= check_counts(bed).keys()
        for key in keys:
            assert bed.end("unread", key, v2.ROLLBACK) == v2.OK
        bed.send_all(half("unread", "last"))
        while silent.asked().transaction_id != "last":
            pass
    assert bed.end("unread", "last", v2.ROLLBACK) == v2.OK


def test_a_producer_that_has_said_that_it_goes_is_asked_nothing(bed: MessagingBed) -> None:
    """Its stream stays open, as that of RocketMQ's client in Go does; the one that stays is asked instead."""
    bed.create("left", 1, "TRANSACTION")
    with (
        ProducerStream(bed.channel, "leaves", "left") as leaving,
        ProducerStream(bed.channel, "stays", "left") as staying,
    ):
        goodbye = service_pb2.NotifyClientTerminationRequest()
        bed.call("NotifyClientTermination", goodbye, client=(("x-mq-client-id", "leaves"),))
        keys = [f"L{number}" for number in range(4)]
        for key in keys:
            bed.send_all(half("left", key))
        asked = [staying.asked().transaction_id for _ in range(8)]
        told = leaving.end()
    assert {bed.end("left", key, v2.ROLLBACK) for key in keys} == {v2.OK}
    assert set(asked) <= set(keys)
    assert told == []
