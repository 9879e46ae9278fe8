"""Single calls of the synchronous client against services whose calls meet faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from faulty_penstock import FaultyPenstock, rich_status

from penstock import (
    Client,
    ClientClosed,
    DeadlineExceeded,
    InvalidArgument,
    Message,
    PullStatus,
    RecordBatch,
    ResourceExhausted,
    Unavailable,
    UnknownOutcome,
)
from penstock.channel import Lane
from penstock.wire import Method

UNAVAILABLE = rich_status(grpc.StatusCode.UNAVAILABLE, "away")
BUSY = rich_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", retry_delay_ms=5)


def test_a_query_by_key_pages_and_leaves_out_what_only_shares_the_hash(client: Client) -> None:
    """Every record with the key comes once, newest first over several pages; a collision does not."""
    for n in range(10):
        client.produce("orders", b"%d" % n, queue_id=0, keys=["Aa", f"n{n}"])
        client.produce("orders", b"other", queue_id=0, keys=["BB"])  # of the same Java hash

    found = client.query_by_key("orders", "Aa", page_size=3)

    assert [record.body for record in found] == [b"%d" % n for n in reversed(range(10))]
    assert found.indexed_offset > 0
    assert [r.body for r in client.query_by_key("orders", "n4")] == [b"4"]


def test_wait_ready_returns_when_all_serve_and_names_the_one_that_does_not(
    client: Client, faulty: FaultyPenstock
) -> None:
    """The health of each service counts, not only an open port."""
    client.wait_ready(30)
    faulty.health.set("penstock.v1.Reader", 2)

    with pytest.raises(Unavailable, match=r"reader.*not serving"):
        client.wait_ready(1)


def test_wait_ready_outlasts_a_service_that_starts_late(faulty: FaultyPenstock) -> None:
    """A refused connection is waited out."""
    faulty.stop()
    with Client(**faulty.addresses) as client:
        with pytest.raises(Unavailable):
            client.wait_ready(0.2)
        faulty.start()
        client.wait_ready(10)


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("Pull", lambda c: c.pull("orders", 0, 0)),
        ("QueryByKey", lambda c: list(c.query_by_key("orders", "k"))),
        ("QueryOffset", lambda c: c.offset("orders", 0)),
        ("CommitOffset", lambda c: c.commit_offset("g", "orders", 0, 0)),
        ("FetchOffsets", lambda c: c.offsets("g")),
        ("ListGroups", lambda c: c.groups()),
        ("ListTopics", lambda c: c.topics()),
        ("DescribeTopic", lambda c: c.describe_topic("orders")),
        ("UpdateTopic", lambda c: c.update_topic("orders", queues=5)),
    ],
)
def test_a_call_that_may_be_repeated_is_repeated_when_the_service_is_away(
    client: Client, faulty: FaultyPenstock, method: str, call: object
) -> None:
    """Two failures are outlasted; the third attempt succeeds."""
    faulty.fail_next(method, UNAVAILABLE, times=2)

    call(client)  # type: ignore[operator]

    assert faulty.calls[method] == 3


@pytest.mark.parametrize(
    ("method", "call", "error"),
    [
        ("CreateTopic", lambda c: c.create_topic("t"), Unavailable),
        ("DeleteTopic", lambda c: c.delete_topic("orders"), Unavailable),
    ],
)
def test_a_call_that_may_not_be_repeated_is_made_once(
    client: Client, faulty: FaultyPenstock, method: str, call: object, error: type[Exception]
) -> None:
    """One attempt, then the error."""
    faulty.fail_next(method, UNAVAILABLE)

    with pytest.raises(error) as caught:
        call(client)  # type: ignore[operator]

    assert faulty.calls[method] == 1
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
    assert faulty.stored_count() == 0


PRODUCES = [
    ("Produce", lambda c, **more: c.produce("orders", b"x", queue_id=0, **more)),
    ("ProduceBatch", lambda c, **more: c.produce_batch(one_record(), **more).commit_offset),
]


def one_record() -> RecordBatch:
    batch = RecordBatch("orders", queue_id=0)
    batch.add(b"x")
    return batch


@pytest.mark.parametrize(("method", "produce"), PRODUCES)
def test_a_produce_whose_answer_is_lost_is_sent_again_and_stored_once(
    client: Client, faulty: FaultyPenstock, method: str, produce: Callable[..., object]
) -> None:
    """The same sequence each time; only the first is sent as the first."""
    faulty.answers_lost[method] = 2

    produce(client)
    produce(client)

    assert faulty.calls[method] == 4
    assert faulty.bodies("orders", 0) == [b"x", b"x"]
    assert len({request.producer_id for request in faulty.requests}) == 1
    assert [request.sequence for request in faulty.requests] == [1, 1, 1, 2]
    assert [request.age_ms > 0 for request in faulty.requests] == [False, True, True, False]


def test_the_result_says_whether_an_earlier_attempt_had_stored_it(
    client: Client, faulty: FaultyPenstock
) -> None:
    """Of a message, of a batch, and of what a producer sends."""
    for lost in (0, 1):
        faulty.answers_lost["Produce"] = faulty.answers_lost["ProduceBatch"] = lost
        stored = client.produce("orders", b"x", queue_id=0)
        many = client.produce_many([Message("orders", b"x", queue_id=0) for _ in range(2)])
        placed = client.produce_batch(one_record())
        faulty.answers_lost["ProduceBatch"] = lost
        with client.producer() as producer:
            handle = producer.send("orders", b"x", queue_id=1)
        assert [stored.repeated, placed.repeated, handle.result().repeated] == [bool(lost)] * 3
        assert [each.repeated for each in many] == [False, False]
    assert faulty.stored_count() == 10


@pytest.mark.parametrize(("method", "produce"), PRODUCES)
def test_an_unknown_outcome_has_a_token_by_which_the_same_call_finds_out(
    faulty: FaultyPenstock, method: str, produce: Callable[..., object]
) -> None:
    """When nobody has answered in all the time there was; another client may ask, too."""
    faulty.answers_lost[method] = 10_000
    with Client(**faulty.addresses, timeout_s=1) as client:
        client.wait_ready(30)
        with pytest.raises(UnknownOutcome, match="token=") as caught:
            produce(client)
    faulty.answers_lost[method] = 0

    cause = caught.value.__cause__
    assert isinstance(cause, Unavailable)
    assert isinstance(cause.__cause__, grpc.RpcError)
    with Client(**faulty.addresses) as client:
        produce(client, token=caught.value.token)
        produce(client, token=caught.value.token)
    assert faulty.bodies("orders", 0) == [b"x"]
    assert faulty.requests[-1].age_ms > 0


def test_what_the_writer_forgot_is_unknown_and_has_no_token(
    client: Client, faulty: FaultyPenstock
) -> None:
    faulty.fail_next("Produce", rich_status(grpc.StatusCode.ABORTED, "not known any more"))

    with pytest.raises(UnknownOutcome, match="not known any more") as caught:
        client.produce("orders", b"x", queue_id=0)

    assert caught.value.token == ""
    assert faulty.calls["Produce"] == 1


def test_a_refusal_after_a_lost_answer_does_not_say_that_nothing_is_stored(
    client: Client, faulty: FaultyPenstock
) -> None:
    """The writer has stored it, and cannot say so any more: its disk has failed."""
    faulty.answers_lost["Produce"] = 1
    failed = rich_status(grpc.StatusCode.FAILED_PRECONDITION, "read-only")
    faulty.faults["Produce"].extend([None, failed])  # type: ignore[list-item]

    with pytest.raises(UnknownOutcome, match="read-only") as caught:
        client.produce("orders", b"x", queue_id=0)

    client.produce("orders", b"x", queue_id=0, token=caught.value.token)
    assert faulty.bodies("orders", 0) == [b"x"]


@pytest.mark.parametrize("token", ["x", "1-1", "0-1-1", "1-0-1", "8000000000000000-1-1", "1-1-x"])
def test_a_token_that_is_none_is_refused(client: Client, token: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.produce("orders", b"x", queue_id=0, token=token)

    assert caught.value.field == "token"


def test_a_refused_produce_is_repeated_after_the_delay_that_the_writer_names(
    client: Client, faulty: FaultyPenstock
) -> None:
    """RESOURCE_EXHAUSTED means not stored, so it is stored once in the end."""
    faulty.fail_next("Produce", BUSY, times=3)

    client.produce("orders", b"x", queue_id=0)

    assert faulty.calls["Produce"] == 4
    assert faulty.stored_count() == 1


def test_a_refusal_without_a_delay_is_not_repeated(client: Client, faulty: FaultyPenstock) -> None:
    """A message too large for the transport is such a refusal."""
    faulty.fail_next("Produce", rich_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large"))

    with pytest.raises(ResourceExhausted):
        client.produce("orders", b"x", queue_id=0)

    assert faulty.calls["Produce"] == 1


def test_retries_end_at_the_deadline(faulty: FaultyPenstock) -> None:
    """The last error is raised, and in time."""
    faulty.fail_next("Produce", BUSY, times=1000)
    with Client(**faulty.addresses, timeout_s=1) as client:
        client.wait_ready(30)
        with pytest.raises(ResourceExhausted):
            client.produce("orders", b"x", queue_id=0)


def test_a_deadline_that_passes_is_an_error_of_its_own(
    client: Client, faulty: FaultyPenstock
) -> None:
    """A lock held by the store makes the service too slow."""
    with faulty.lock, pytest.raises(DeadlineExceeded):
        client.pull("orders", 0, 0, timeout_s=0.1)


def test_a_long_poll_gets_its_wait_on_top_of_the_timeout(client: Client) -> None:
    """Waiting for longer than ``timeout_s`` is not a failure."""
    client.wait_ready(30)
    client.produce("orders", b"x", queue_id=0)
    result = client.pull("orders", 0, 1, wait_ms=1_200, timeout_s=1)

    assert result.status is PullStatus.OFFSET_OVERFLOW_ONE
    assert len(result.records) == 0


def test_a_closed_client_says_so(faulty: FaultyPenstock) -> None:
    """No call goes out any more, and closing again is harmless."""
    client = Client(**faulty.addresses)
    client.topics()
    client.close()
    client.close()

    with pytest.raises(ClientClosed):
        client.topics()


def test_a_client_closed_between_two_steps_of_a_call_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread; grpc alone would raise a ValueError."""
    found = client.channels.stub

    def closed_meanwhile(method: Method, lane: Lane) -> Any:
        stub = found(method, lane)
        client.close()
        return stub

    monkeypatch.setattr(client.channels, "stub", closed_meanwhile)
    with pytest.raises(ClientClosed):
        client.groups()
