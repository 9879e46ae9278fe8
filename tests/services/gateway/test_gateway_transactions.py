"""Transactions of RocketMQ's clients: half messages, their ends, and checks sent to connected producers."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import grpc
import pytest
from messaging_bed import CLIENT, MessagingBed
from real_processes import until

from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc

PATIENCE_S = 60.0
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


def request_of(*messages: v2.Message) -> service_pb2.SendMessageRequest:
    return service_pb2.SendMessageRequest(messages=messages)


def send(bed: MessagingBed, *messages: v2.Message) -> Any:
    return bed.call("SendMessage", request_of(*messages))


def end(bed: MessagingBed, topic: str, key: str, resolution: int) -> int:
    request = service_pb2.EndTransactionRequest(
        topic=v2.Resource(name=topic), message_id=key, transaction_id=key, resolution=resolution
    )
    return bed.call("EndTransaction", request).status.code


def check_counts(bed: MessagingBed) -> dict[str, int]:
    return {each.transaction_id: each.check_count for each in bed.client.pending_transactions()}


def test_a_transaction_is_stored_by_its_commit(bed: MessagingBed) -> None:
    bed.create("committed", 1, "TRANSACTION")
    (entry,) = send(bed, half("committed", "C1")).entries
    assert (entry.message_id, entry.transaction_id) == ("C1", "C1")
    assert bed.ends("committed") == {0: 0}
    assert end(bed, "committed", "C1", v2.TRANSACTION_RESOLUTION_UNSPECIFIED) == v2.OK
    assert "C1" in check_counts(bed)
    assert end(bed, "committed", "C1", v2.COMMIT) == v2.OK
    assert end(bed, "committed", "C1", v2.COMMIT) == v2.OK
    assert end(bed, "committed", "C1", v2.ROLLBACK) == v2.INVALID_TRANSACTION_ID
    produced = send(bed, half("mixed", "after", v2.NORMAL))
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
    send(bed, half("bills", "B1"))
    assert end(bed, topic, key, v2.COMMIT) == code
    assert end(bed, "bills", "B1", v2.ROLLBACK) == v2.OK


class ConnectedProducer:
    """The Telemetry stream of a producer of a topic; what it is told waits until the test reads it."""

    def __init__(self, channel: grpc.Channel, client: str, topic: str) -> None:
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        settings = v2.Settings(
            client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[v2.Resource(name=topic)])
        )
        self._said.put(service_pb2.TelemetryCommand(settings=settings))
        stub: Any = service_pb2_grpc.MessagingServiceStub(channel)
        self._stream = stub.Telemetry(
            iter(self._said.get, None),
            metadata=(("x-mq-client-id", client), ("x-mq-language", "JAVA")),
            timeout=PATIENCE_S,
        )
        assert next(self._stream).HasField("settings")

    def asked(self) -> service_pb2.RecoverOrphanedTransactionCommand:
        """Return the next question."""
        return next(self._stream).recover_orphaned_transaction_command

    def end(self) -> list[Any]:
        """End the stream in order; return what it was told and nobody has read."""
        self._said.put(None)
        return list(self._stream)

    def close(self) -> None:
        """End the stream."""
        self._said.put(None)
        self._stream.cancel()


def test_a_connected_producer_of_the_topic_is_asked(bed: MessagingBed) -> None:
    bed.create("orphans", 2, "TRANSACTION")
    send(bed, half("orphans", "O1"))
    with closing(ConnectedProducer(bed.channel, CLIENT[0][1], "orphans")) as producer:
        asked = producer.asked()
        assert asked.transaction_id == "O1"
        assert (asked.message.topic.name, asked.message.body) == ("orphans", b"O1")
        assert asked.message.user_properties["colour"] == "red"
        system = asked.message.system_properties
        assert (system.message_id, system.tag, system.delivery_attempt) == ("O1", "t", 1)
        assert system.message_type == v2.TRANSACTION
        assert end(bed, "orphans", "O1", v2.COMMIT) == v2.OK


def test_a_producer_that_does_not_read_keeps_no_other_from_its_checks(bed: MessagingBed) -> None:
    """Its own checks stay pending; it is asked when it reads again."""
    bed.create("unread", 1, "TRANSACTION")
    bed.create("read", 1, "TRANSACTION")
    keys = {f"U{number}" for number in range(4)}
    with (
        grpc.insecure_channel(bed.addresses["gateway"], options=OWN_CONNECTION) as channel,
        closing(ConnectedProducer(channel, "silent", "unread")) as silent,
        closing(ConnectedProducer(bed.channel, "reads", "read")) as reading,
    ):
        for key in keys:
            message = half("unread", key)
            message.body = bytes(2 << 20)
            assert send(bed, message).status.code == v2.OK
        asked: dict[str, int] = {}
        while asked != (
            now := check_counts(bed)
        ):  # until it is asked no more: its connection is full
            asked = now
            time.sleep(1)
        for number in range(5):
            send(bed, half("read", f"R{number}"))
            asked = reading.asked()
            while asked.transaction_id != f"R{number}":
                asked = reading.asked()
            assert end(bed, "read", f"R{number}", v2.COMMIT) == v2.OK
        assert keys <= check_counts(bed).keys()
        for key in keys:
            assert end(bed, "unread", key, v2.ROLLBACK) == v2.OK
        send(bed, half("unread", "last"))
        while silent.asked().transaction_id != "last":
            pass
    assert end(bed, "unread", "last", v2.ROLLBACK) == v2.OK


def test_a_producer_that_has_said_that_it_goes_is_asked_nothing(bed: MessagingBed) -> None:
    """Its stream stays open, as that of RocketMQ's client in Go does; the one that stays is asked instead."""
    bed.create("left", 1, "TRANSACTION")
    with (
        closing(ConnectedProducer(bed.channel, "leaves", "left")) as leaving,
        closing(ConnectedProducer(bed.channel, "stays", "left")) as staying,
    ):
        goodbye = service_pb2.NotifyClientTerminationRequest()
        bed.call("NotifyClientTermination", goodbye, client=(("x-mq-client-id", "leaves"),))
        keys = [f"L{number}" for number in range(4)]
        for key in keys:
            send(bed, half("left", key))
        asked = [staying.asked().transaction_id for _ in range(8)]
        told = leaving.end()
    assert {end(bed, "left", key, v2.ROLLBACK) for key in keys} == {v2.OK}
    assert set(asked) <= set(keys)
    assert told == []
