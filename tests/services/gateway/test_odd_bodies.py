"""Bodies that RocketMQ's clients send compressed, or say so: each is its own message's trouble alone."""

from __future__ import annotations

import gzip
import time
import zlib
from itertools import islice

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from messaging_bed import MessagingBed, message

from cli.failures import ExitCode
from penstock import LeasedRecord, Record, UnreadableBody
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2

PLAIN = b"hello " * 100
READABLE = {
    "gzip": gzip.compress(PLAIN),
    "gzip of two members": gzip.compress(PLAIN[:99]) + gzip.compress(PLAIN[99:]),
    "zlib": zlib.compress(PLAIN),
}
UNREADABLE = {
    "text": PLAIN,
    "cut gzip": gzip.compress(PLAIN)[:-9],
    "cut zlib": zlib.compress(PLAIN)[:-5],
    "wrong gzip": gzip.compress(PLAIN)[:-8] + bytes(8),
    "gzip of too much": gzip.compress(bytes(33 << 20)),
    "zlib of too much": zlib.compress(bytes(33 << 20)),
}
BODIES = [*READABLE.values(), *UNREADABLE.values(), b"last"]


@pytest.fixture(name="topic", scope="module")
def _topic(bed: MessagingBed) -> str:
    """A topic with all the bodies in one queue, the last one plain."""
    topic = bed.topic("FIFO")
    for body in BODIES:
        encoding = v2.IDENTITY if body == b"last" else v2.GZIP
        sent = bed.send(
            topic, body, message_type=v2.FIFO, message_group="g", body_encoding=encoding, keys=["k"]
        )
        assert sent.code == v2.OK
    return topic.name


def read(record: Record) -> bytes:
    """Return the body, or what it is as stored."""
    assert repr(record).endswith(" bytes>")
    try:
        return record.body
    except UnreadableBody as error:
        assert (error.topic, error.queue_offset) == (record.topic, record.queue_offset)
        assert error.problem in str(error)
        assert record.message_id in str(error)
        return record.stored_body


EXPECTED = [PLAIN] * len(READABLE) + [*UNREADABLE.values(), b"last"]


def test_what_can_be_unpacked_is_and_the_rest_is_skipped(bed: MessagingBed, topic: str) -> None:
    records = list(bed.client.consume(topic, group="reads", follow=False))

    assert [read(record) for record in records] == EXPECTED
    assert [record.stored_body for record in records] == BODIES
    assert list(bed.client.consume(topic, group="reads", follow=False)) == []


def test_clients_of_rocketmq_get_each_body_under_an_encoding_that_is_true(
    bed: MessagingBed, topic: str
) -> None:
    found = bed.receive(v2.Resource(name=topic), v2.Resource(name="receives"), batch_size=32)

    for each, body in zip(found, BODIES, strict=True):
        encoding = v2.IDENTITY if body in (READABLE["zlib"], b"last") else v2.GZIP
        assert each.system_properties.body_encoding == encoding
        assert each.body == (PLAIN if body == READABLE["zlib"] else body)


def test_a_body_that_a_handler_fails_for_becomes_a_dead_letter_and_can_be_sent_again(
    bed: MessagingBed, topic: str
) -> None:
    group = "gives-up"
    bed.client.create_group(group, retry_max_times=0, backoff=(10,))
    handled: list[bytes] = []
    with bed.client.subscribe(topic, group=group, idle_s=1) as messages:
        messages.run(lambda record: handled.append(record.body))
    assert sorted(handled) == sorted([*[PLAIN] * len(READABLE), b"last"])  # eight at a time

    again = bed.topic().name
    bed.client.create_group("after")
    dead = islice(bed.client.consume(f"%DLQ%{group}"), len(UNREADABLE))
    assert sorted(record.stored_body for record in dead) == sorted(UNREADABLE.values())
    done = bed.penstock("dlq", "resend", group, "--topic", again)
    assert done.stdout == f"{len(UNREADABLE)} messages sent again\n"
    resent: list[LeasedRecord] = []
    with bed.client.subscribe(again, group="after", idle_s=1) as leased:
        resent += leased
    assert sorted(
        (record.stored_body, record.sys_flag, record.keys) for record in resent
    ) == sorted((body, 1, ("k",)) for body in UNREADABLE.values())
    assert sorted(map(read, resent)) == sorted(UNREADABLE.values())


def test_what_sub_prints_of_a_clients_message_pub_stores(bed: MessagingBed) -> None:
    """What the gateway and the store have added is not among the properties of the user."""
    topic, copy = bed.topic("DELAY"), bed.topic()
    due = Timestamp()
    due.FromMilliseconds(time.time_ns() // 1_000_000 + 500)
    sent = message(topic, b"x", message_type=v2.DELAY, delivery_timestamp=due, tag="t", keys=["k"])
    sent.user_properties["colour"] = "red"
    bed.call("SendMessage", service_pb2.SendMessageRequest(messages=[sent]))
    bed.client.produce(topic.name, b"y", delay_level=1, queue_id=0)
    bed.receive(topic, v2.Resource(name="waits"), batch_size=1)

    with bed.client.consume(topic.name, wait_ms=500) as records:
        next(records), next(records)
    printed = bed.penstock("--json", "sub", topic.name).stdout
    assert '"BORN_TIMESTAMP"' in printed and '"DELAY"' in printed
    done = bed.penstock("pub", copy.name, "--json-lines", "-", stdin=printed)
    assert (done.exit_code, done.stderr) == (ExitCode.DONE, "")
    copies = {record.body: record for record in bed.client.consume(copy.name, follow=False)}
    assert (copies[b"x"].keys, copies[b"x"].tag) == (("k",), "t")
    assert copies[b"x"].properties["colour"] == "red"
    assert set(copies) == {b"x", b"y"}
