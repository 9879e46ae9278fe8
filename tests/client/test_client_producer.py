"""The streaming producer against a writer whose calls meet faults: batching, bounds, refusals, lost answers."""

from __future__ import annotations

import threading
import time

import grpc
import pytest
from faulty_penstock import FaultyPenstock, rich_status
from google.rpc import status_pb2
from real_processes import until

from penstock import (
    Client,
    ClientClosed,
    DeliveryFailed,
    FailedPrecondition,
    Handle,
    InvalidArgument,
    ResourceExhausted,
    ServiceFailed,
    Unavailable,
    UnknownOutcome,
)
from penstock.tls import BadTlsFile

BUSY = rich_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", retry_delay_ms=20)
PATIENCE_S = (0.3, 1.0, 3.0, 10.0)  # a busy machine may need the longer ones to be answered at all


def bad_record(index: int) -> status_pb2.Status:
    return rich_status(
        grpc.StatusCode.INVALID_ARGUMENT, "bad", metadata={"record_index": str(index)}
    )


def test_messages_without_a_queue_are_spread_over_all_of_them(
    client: Client, faulty: FaultyPenstock
) -> None:
    """Every queue of the topic gets its share, a batch at a time."""
    with client.producer(batch_bytes=500, linger_ms=1) as producer:
        for n in range(400):
            producer.send("orders", b"%d" % n)

    counts = [len(faulty.bodies("orders", queue_id)) for queue_id in range(4)]
    assert sum(counts) == 400
    assert min(counts) > 40


def test_flush_does_not_linger(client: Client) -> None:
    """With a linger time of a minute a flush still returns at once."""
    with client.producer(linger_ms=60_000) as producer:
        handle = producer.send("orders", b"x", queue_id=0)
        began = time.monotonic()
        producer.flush()

        assert handle.done
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("ordered", [True, False])
def test_no_more_batches_than_allowed_are_unanswered_and_send_blocks(
    client: Client, faulty: FaultyPenstock, ordered: bool
) -> None:
    """The writer withholds its answers: sending stops at the bound and goes on afterwards.

    What waits besides the batches in flight is small.
    """
    faulty.answers_wait.clear()
    sent: list[Handle] = []
    body = b"x" * (10 << 10)
    blocked = threading.Event()

    def send() -> None:
        with client.producer(
            max_in_flight=3, batch_bytes=200, linger_ms=0, ordered=ordered
        ) as producer:
            sent.extend(producer.send("orders", body, queue_id=n % 4) for n in range(600))
        blocked.set()

    thread = threading.Thread(target=send)
    thread.start()
    until(lambda: faulty.batches_unanswered_max == 3)
    assert not blocked.wait(0.3)
    held = len(sent)
    assert held <= 30
    faulty.answers_wait.set()
    thread.join(30)

    assert blocked.is_set()
    assert faulty.batches_unanswered_max == 3
    assert faulty.stored_count() == 600


@pytest.mark.parametrize("ordered", [True, False])
def test_a_refused_batch_is_not_overtaken_by_the_next_one_of_its_queue(
    client: Client, faulty: FaultyPenstock, ordered: bool
) -> None:
    """The first of five batches is refused while all could be under way; only unordered they are."""
    faulty.answers_wait.clear()
    faulty.fail_next("ProduceBatch", BUSY)
    with client.producer(batch_bytes=1, linger_ms=0, ordered=ordered) as producer:
        for n in range(5):
            producer.send("orders", b"%d" % n, queue_id=0)
            time.sleep(0.01)
        if not ordered:
            until(lambda: faulty.batches_unanswered_max == 5)
        faulty.answers_wait.set()

    bodies = faulty.bodies("orders", 0)
    assert sorted(bodies) == [b"%d" % n for n in range(5)]
    if ordered:
        assert bodies == sorted(bodies)


def test_a_batch_that_stays_refused_fails_after_the_delivery_timeout(
    client: Client, faulty: FaultyPenstock
) -> None:
    """The handle raises what the writer said; flush raises it too."""
    faulty.fail_next("ProduceBatch", BUSY, times=1000)
    for delivery_timeout_s in PATIENCE_S:
        producer = client.producer(delivery_timeout_s=delivery_timeout_s)
        handle = producer.send("orders", b"x", queue_id=0)

        with pytest.raises(DeliveryFailed) as caught:
            producer.flush()
        assert caught.value.message_count == 1
        producer.close()
        if not isinstance(handle.exception(), UnknownOutcome | Unavailable):
            break
    with pytest.raises(ResourceExhausted):
        handle.result()


def test_one_bad_record_does_not_fail_its_neighbours(
    client: Client, faulty: FaultyPenstock
) -> None:
    """The writer refuses the batch naming record 2: that one fails, the others are stored."""
    faulty.fail_next("ProduceBatch", bad_record(2))
    faulty.fail_next("ProduceBatch", bad_record(0))
    producer = client.producer(linger_ms=60_000)
    handles = [producer.send("orders", b"%d" % n, queue_id=0) for n in range(5)]

    with pytest.raises(DeliveryFailed) as caught:
        producer.flush()

    assert caught.value.message_count == 2
    assert faulty.bodies("orders", 0) == [b"1", b"3", b"4"]
    assert [h.exception() is None for h in handles] == [False, True, False, True, True]
    assert isinstance(handles[2].exception(), InvalidArgument)
    assert [handles[n].result().queue_offset for n in (1, 3, 4)] == [0, 1, 2]
    assert client.message(handles[4].result().commit_offset).body == b"4"
    producer.flush()
    producer.close()


def test_a_writer_that_is_read_only_fails_everything_at_once(
    client: Client, faulty: FaultyPenstock
) -> None:
    """Nothing waits for the delivery timeout when waiting cannot help."""
    read_only = rich_status(grpc.StatusCode.FAILED_PRECONDITION, "read-only")
    faulty.fail_next("ProduceBatch", read_only)
    producer = client.producer(linger_ms=0)
    handle = producer.send("orders", b"x", queue_id=0)

    with pytest.raises(FailedPrecondition):
        handle.result(30)
    with pytest.raises(DeliveryFailed):
        producer.close()


def test_a_batch_whose_answer_is_lost_is_sent_again_and_stored_once(
    client: Client, faulty: FaultyPenstock
) -> None:
    """The writer stores the second batch, and the connection breaks before its answer."""
    with client.producer(batch_bytes=1, linger_ms=0, max_in_flight=1) as producer:
        assert producer.send("orders", b"a", queue_id=0).result(30).queue_offset == 0
        faulty.answers_lost["ProduceBatch"] = 1
        second = producer.send("orders", b"b", queue_id=0)
        third = producer.send("orders", b"c", queue_id=1)
        assert second.result(30).queue_offset == 1
        assert third.result(30).queue_offset == 0

    assert faulty.bodies("orders", 0) == [b"a", b"b"]
    assert faulty.bodies("orders", 1) == [b"c"]
    requests = [(each.sequence, each.age_ms > 0) for each in faulty.requests]
    assert sorted(requests) == [(1, False), (2, False), (2, True), (3, False)]


@pytest.mark.parametrize("ordered", [True, False])
def test_every_batch_in_flight_whose_answer_is_lost_is_stored_once(
    client: Client, faulty: FaultyPenstock, ordered: bool
) -> None:
    """Of four that are on the way at once."""
    faulty.answers_wait.clear()
    faulty.answers_lost["ProduceBatch"] = 4
    producer = client.producer(batch_bytes=1, linger_ms=0, ordered=ordered)
    queues = range(4) if ordered else [0] * 4
    handles = []
    for n, queue_id in enumerate(queues):
        handles.append(producer.send("orders", b"%d" % n, queue_id=queue_id))
        until(lambda n=n: faulty.batches_unanswered_max == n + 1)  # type: ignore[misc]
    faulty.answers_wait.set()
    producer.close()

    assert [handle.exception() for handle in handles] == [None] * 4
    stored = [faulty.bodies("orders", n) for n in range(4)]
    bodies = [b"0", b"1", b"2", b"3"]
    if ordered:
        assert stored == [[body] for body in bodies]
    else:
        assert sorted(stored[0]) == bodies
    assert {request.sequence for request in faulty.requests} == {1, 2, 3, 4}
    assert len(faulty.requests) == 8


def test_a_break_that_lasts_leaves_what_was_sent_unknown(
    client: Client, faulty: FaultyPenstock
) -> None:
    """After the delivery timeout, with a token for each that was sent."""
    client.wait_ready(30)
    producer = client.producer(linger_ms=0, delivery_timeout_s=1, max_in_flight=1)
    producer.send("orders", b"a", queue_id=0).result(30)
    faulty.answers_wait.clear()
    sent = producer.send("orders", b"b", queue_id=0)
    until(lambda: producer.in_flight_count == 1)
    faulty.stop()

    error = sent.exception(30)
    with pytest.raises(DeliveryFailed):
        producer.close()
    assert isinstance(error, UnknownOutcome)
    assert error.token


def test_messages_wait_for_a_writer_that_is_away(client: Client, faulty: FaultyPenstock) -> None:
    """What was never sent is sent when the writer is back."""
    faulty.stop()
    producer = client.producer(linger_ms=0)
    handle = producer.send("orders", b"x", queue_id=0)
    faulty.start()

    assert handle.result(30).queue_offset == 0
    producer.close()
    assert faulty.bodies("orders", 0) == [b"x"]


def test_a_writer_that_stops_answering_is_given_up(client: Client, faulty: FaultyPenstock) -> None:
    """After the delivery timeout the outcome is unknown; nothing waits for ever."""
    for delivery_timeout_s in PATIENCE_S[1:]:
        faulty.answers_wait.set()
        producer = client.producer(linger_ms=0, delivery_timeout_s=delivery_timeout_s)
        answered = producer.send("orders", b"answered", queue_id=0).exception(30)
        faulty.answers_wait.clear()
        handle = producer.send("orders", b"x", queue_id=0)
        handle.exception(30)
        with pytest.raises(DeliveryFailed):
            producer.close()
        if answered is None and not isinstance(handle.exception(), Unavailable):
            break

    with pytest.raises(UnknownOutcome):
        handle.result(30)


def test_what_a_closed_client_leaves_undone_is_raised_at_the_close(faulty: FaultyPenstock) -> None:
    """Though the producer has ended by itself then."""
    client = Client(**faulty.addresses)
    producer = client.producer(linger_ms=0)
    producer.send("orders", b"a", queue_id=0).result(30)
    faulty.answers_wait.clear()
    handles = [producer.send("orders", b"%d" % n, queue_id=n) for n in range(3)]
    until(lambda: producer.in_flight_count == 3)
    client.close()
    faulty.answers_wait.set()

    assert [type(handle.exception(30)) for handle in handles] == [UnknownOutcome] * 3
    with pytest.raises(DeliveryFailed) as caught:
        producer.close()
    assert caught.value.message_count == 3


def test_an_attempt_that_cannot_be_made_fails_its_batch_alone(
    client: Client, faulty: FaultyPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as with a certificate that has expired: the next batch may find another one."""
    stub = client.channels.stub

    def refuse(*_: object) -> None:
        monkeypatch.setattr(client.channels, "stub", stub)
        raise BadTlsFile("the certificate has expired")

    producer = client.producer(linger_ms=0)
    monkeypatch.setattr(client.channels, "stub", refuse)
    with pytest.raises(ServiceFailed, match="expired"):
        producer.send("orders", b"a", queue_id=0).result(30)
    assert producer.send("orders", b"b", queue_id=0).result(30).queue_offset == 0
    with pytest.raises(DeliveryFailed):
        producer.close()


def test_a_closed_producer_takes_nothing(client: Client) -> None:
    """And closing it twice is harmless."""
    producer = client.producer()
    producer.close()
    producer.close()

    with pytest.raises(ClientClosed):
        producer.send("orders", b"x", queue_id=0)
