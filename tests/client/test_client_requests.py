"""What cannot be sent is refused before it is, with the field's name, and breaks nothing else."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import grpc
import numpy as np
import pytest
from faulty_penstock import FaultyPenstock, rich_status

from penstock import (
    Client,
    InvalidArgument,
    RecordBatch,
    RetryPolicy,
    Unavailable,
)
from penstock.calls.offsets import timestamp_ms
from penstock.requests import REQUEST_BYTES_MAX
from penstock.retry import Repeat
from services.config.settings import ProcessSettings

LONE_SURROGATE = "\ud800"
TOO_LARGE = b"x" * (REQUEST_BYTES_MAX + 1)


def test_a_client_sends_what_services_take_by_default() -> None:
    assert ProcessSettings.model_fields["message_bytes_max"].default == REQUEST_BYTES_MAX


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("topic", lambda client: client.produce(LONE_SURROGATE, b"x")),
        ("queue_id", lambda client: client.produce("orders", b"x", queue_id=1 << 40)),
        ("flag", lambda client: client.produce("orders", b"x", flag=1 << 40)),
        ("keys", lambda client: client.produce("orders", b"x", keys="one text")),
        ("keys", lambda client: client.produce("orders", b"x", keys=[LONE_SURROGATE])),
        ("properties", lambda c: c.produce("orders", b"x", properties={"a": LONE_SURROGATE})),
        ("messages", lambda client: client.produce("orders", TOO_LARGE)),
        ("records", lambda client: client.produce_batch(TOO_LARGE)),
        ("queue_offset", lambda client: client.pull("orders", 0, 1 << 70)),
        ("queue_id", lambda client: RecordBatch("orders", queue_id=1 << 40).add(b"x")),
        ("flag", lambda client: RecordBatch("orders").add(b"x", flag=1 << 40)),
        ("topic", lambda client: RecordBatch(LONE_SURROGATE).add(b"x")),
    ],
)
def test_what_no_request_can_hold_names_its_field(
    client: Client, faulty: FaultyPenstock, field: str, call: Callable[[Client], Any]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call(client)

    assert caught.value.field == field
    assert field in caught.value.message
    assert len(caught.value.message) < 300
    assert not faulty.calls


@pytest.mark.parametrize(
    ("problem", "call"),
    [
        (
            "'eraliest' is not a position",
            lambda client: next(client.consume("t", queues=[0], start="eraliest", follow=False)),
        ),
        ("'today' is not a position", lambda client: client.offset("t", 0, "today")),
        (
            "'today' is not a time",
            lambda client: list(client.query_by_key("t", "k", begin="today")),
        ),
        ("1.5 is not a time", lambda client: list(client.query_by_key("t", "k", end=1.5))),
    ],
)
def test_a_position_that_is_none_says_what_would_be(
    client: Client, problem: str, call: Callable[[Client], Any]
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        call(client)


BEFORE_1970 = (
    datetime(1, 1, 1),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
)


NO_TIMES: list[Any] = [
    *BEFORE_1970, -1, -2, 1.5, "yesterday", math.nan, True, False, 1 << 63, 10**400, np.int64(-1),
    np.array([1, 2]), np.array(["latest", "earliest"]), np.array(1 << 20),
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("start", lambda client, time: client.consume("orders", start=time, follow=False)),
        ("position", lambda client, time: client.offset("orders", 0, time)),
        ("begin", lambda client, time: client.query_by_key("orders", "k", begin=time)),
        ("end", lambda client, time: client.query_by_key("orders", "k", end=time)),
        ("deliver_at", lambda client, time: client.produce("orders", b"x", deliver_at=time)),
    ],
)
def test_a_time_or_a_place_that_is_none_names_its_field(
    client: Client, faulty: FaultyPenstock, field: str, call: Callable[[Client, Any], Any]
) -> None:
    """Also where a group has an offset, and nothing is asked of a service."""
    client.commit_offset("g", "orders", 0, 0)
    asked = sum(faulty.calls.values())
    for value in NO_TIMES:
        with pytest.raises(InvalidArgument, match=f"^{field}: ") as caught:
            call(client, value)
        assert caught.value.field == field
    assert sum(faulty.calls.values()) == asked


def test_a_group_is_not_reset_to_a_time_that_is_none(client: Client) -> None:
    for value in BEFORE_1970:
        with pytest.raises(InvalidArgument, match=r"^to: "):
            client.reset_group("g", "orders", value)


def test_a_count_of_what_is_due_takes_seconds(client: Client) -> None:
    for within_s in (math.nan, math.inf, "soon"):
        with pytest.raises(InvalidArgument, match=r"^within_s: "):
            client.timers(within_s=[within_s])  # type: ignore[list-item]


def test_a_datetime_is_its_own_millisecond() -> None:
    """Floating-point seconds would be the millisecond before."""
    for millisecond in range(1000):
        moment = datetime(2013, 12, 1, 1, 0, 0, millisecond * 1000, UTC)
        assert timestamp_ms(moment, field="begin") == 1385859600000 + millisecond


def test_a_message_too_large_for_a_request_leaves_the_others_alone(
    client: Client, faulty: FaultyPenstock
) -> None:
    with client.producer() as producer:
        before = producer.send("orders", b"before", queue_id=0)
        with pytest.raises(InvalidArgument, match="16777210"):
            producer.send("orders", TOO_LARGE, queue_id=0)
        with pytest.raises(InvalidArgument):
            producer.send(LONE_SURROGATE, b"x", queue_id=0)
        after = producer.send("orders", b"after", queue_id=0)

    assert before.exception() is None
    assert after.exception() is None
    assert faulty.bodies("orders", 0) == [b"before", b"after"]


def test_a_client_of_a_service_with_another_limit_takes_that_limit(faulty: FaultyPenstock) -> None:
    with Client(**faulty.addresses, request_bytes_max=100) as client:
        with pytest.raises(InvalidArgument, match="most is 100"):
            client.produce("orders", b"x" * 100)
        assert client.produce("orders", b"x" * 10).queue_offset == 0


def test_a_produce_that_was_never_sent_is_not_of_unknown_outcome(faulty: FaultyPenstock) -> None:
    reader = faulty.addresses["reader"]
    with socket.socket() as unused:  # bound and not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        here = Client(writer=address, reader=reader, timeout_s=1.5)
        with here as client, pytest.raises(Unavailable):
            client.produce("orders", b"x")


def test_where_nobody_listens_a_call_may_be_given_less_time(faulty: FaultyPenstock) -> None:
    """A service that answers, if only that it is away, has the whole timeout."""
    soon = RetryPolicy(unreachable_s_max=0.2)
    nobody = {**faulty.addresses, "writer": "127.0.0.1:1"}
    with Client(**nobody, timeout_s=60, retry=soon) as client:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="refused"):
            client.topics()
        assert time.monotonic() - began < 30
    away = Unavailable("away")
    assert soon.delay_ms(away, Repeat.SAFE, 3, elapsed_s=10.0) is not None


@pytest.mark.parametrize("reason", ["DRAINING", "STORE_CLOSED", ""])
def test_a_produce_that_a_stopping_writer_turned_away_is_sent_again(
    client: Client, faulty: FaultyPenstock, reason: str
) -> None:
    """As for the first time where it says that it is stopping; without a reason it may have stored it."""
    status = rich_status(grpc.StatusCode.UNAVAILABLE, "stopping", reason=reason)
    faulty.fail_next("Produce", status)

    client.produce("orders", b"x", queue_id=0)
    assert faulty.bodies("orders", 0) == [b"x"]
    assert [request.age_ms > 0 for request in faulty.requests] == [not reason]
