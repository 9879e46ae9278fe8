"""Leases over gRPC: messages handed out for a time, acknowledged, given back, waited for."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from leasing import Consumer, Leased, create_group, create_topic, put
from three_services import ThreeServices, in_time, three_services

from penstock.v1 import groups_pb2, leases_pb2, reader_pb2
from services.reader import lease_servicer, receives
from services.reader import leases as reader_leases
from storage.format.config_json import decode_config
from storage.format.record import decode_record
from storage.leases.values import ReceivedBatch

EXPIRED, ACKNOWLEDGED, FORGED = (
    leases_pb2.EXPIRED,
    leases_pb2.ACKNOWLEDGED,
    leases_pb2.FORGED,
)
LATE_S = 0.05  # of a redelivery, at most
BUSY_S = 0.5  # tests allow for a busy machine
TRIES = 20  # and for one that stands still now and then
ROUNDED_S = 0.005  # the reader counts milliseconds of another clock
LONG_S = 20.0  # for what comes at once, and would take longer than this if nobody was woken
numbers = itertools.count()


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("leases") / "store") as running:
        create_topic(running, "topic")
        yield running


@pytest.fixture
def topic(services: ThreeServices) -> str:
    name = f"topic-{next(numbers)}"
    create_topic(services, name)
    return name


@pytest.fixture
def consumer(services: ThreeServices, topic: str) -> Consumer:
    return Consumer(services, f"group-{next(numbers)}", topic)


def bodies(leased: list[Leased]) -> list[bytes]:
    return [each.body for each in leased]


def in_background(call: Callable[[], Any]) -> Callable[[], tuple[Any, float]]:
    """Make a call in a thread; return a function that returns its result, and when it came."""
    found: list[Any] = []

    def run() -> None:
        try:
            result = call()
        except grpc.RpcError as error:
            result = error
        found.extend((result, time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()

    def outcome() -> tuple[Any, float]:
        thread.join(120)
        return found[0], found[1]

    return outcome


@pytest.fixture
def in_line(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Returns once so many receives wait, since the test began, and there was nothing for them.

    A line asks for all who wait once more after the first has joined it: before that, they may be given what
    the test stores next.
    """
    joined: list[Callable[[], bool]] = []
    wait = receives.Receives.wait

    async def noted(mine: receives.Receives, key: Any, question: Any, *rest: Any) -> Any:
        joined.append(lambda: mine.has_nothing(key, question))
        return await wait(mine, key, question, *rest)

    monkeypatch.setattr(receives.Receives, "wait", noted)

    def reached(wanted: int) -> None:
        until = time.monotonic() + 60
        while len(joined) < wanted or not all(has_nothing() for has_nothing in joined):
            assert time.monotonic() < until
            time.sleep(0.002)

    return reached


def assert_in_time(late: Callable[[], float]) -> None:
    """Call what returns how many seconds late something was until it was in time once."""
    found = []
    for _ in range(TRIES):
        found.append(late())
        if found[-1] < LATE_S + BUSY_S:
            return
    raise AssertionError(f"late each time: {found}")


def test_the_status_counts_what_each_group_has_in_hand(
    services: ThreeServices, topic: str, consumer: Consumer
) -> None:
    """Over all its topics; a group that has done all is there with nothing."""
    other_topic = f"{topic}-too"
    create_topic(services, other_topic)
    put(services, topic, b"a", b"b", b"c", b"d")
    put(services, other_topic, b"e")
    a, b, _, _ = consumer.receive()
    elsewhere = Consumer(services, consumer.group, other_topic)
    done = Consumer(services, f"{consumer.group}-done", topic)
    assert len(elsewhere.receive()) == 1
    assert done.acknowledge(*done.receive()) == []
    assert consumer.acknowledge(a) == []
    assert consumer.change(600_000, b) == []  # as a member does that gives it back
    (leased,) = [each for each in lease_status(services).groups if each.group == consumer.group]
    assert (leased.leased, leased.waiting) == (4, 0)
    assert consumer.change(0, b) == []

    status = lease_status(services)

    counts = {each.group: (each.leased, each.waiting) for each in status.groups}
    assert counts[consumer.group] == (3, 1)
    assert counts[done.group] == (0, 0)
    assert [each.group for each in status.groups] == sorted(counts)
    (path,) = (services.store / "leases").iterdir()
    assert 0 < status.journal_bytes <= path.stat().st_size
    assert status.problem == ""


def lease_status(services: ThreeServices) -> leases_pb2.LeaseStatus:
    return services.leases.GetLeaseStatus(leases_pb2.GetLeaseStatusRequest(), timeout=30)


def test_an_unknown_group_is_made_as_a_broker_makes_it(
    services: ThreeServices, topic: str, consumer: Consumer
) -> None:
    assert consumer.receive() == []
    settings = services.groups.DescribeGroup(
        groups_pb2.DescribeGroupRequest(group=consumer.group), timeout=20
    ).settings
    assert (settings.retry_max_times, settings.orderly, settings.consume_enable) == (
        16,
        False,
        True,
    )
    assert settings.begin == groups_pb2.FROM_EARLIEST
    assert len(settings.backoff.customized.next_ms) == 18
    table = decode_config((services.store / "config" / "subscriptionGroup.json").read_bytes())
    entry = table["subscriptionGroupTable"][consumer.group]
    assert entry["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert entry["retryMaxTimes"] == 16


def test_a_lease_that_ends_wakes_who_waits(
    services: ThreeServices, topic: str, consumer: Consumer
) -> None:
    def late() -> float:
        put(services, topic, b"a")
        began = time.monotonic()
        (leased,) = consumer.receive(lease_ms=400)
        ends = time.monotonic() + 0.4
        again = consumer.receive(wait_ms=25_000)
        came = time.monotonic()
        assert [(each.body, each.attempt) for each in again] == [(b"a", 2)]
        assert came >= began + 0.4 - ROUNDED_S
        assert consumer.acknowledge(leased) == [(0, EXPIRED)]
        assert consumer.acknowledge(*again) == []
        assert consumer.acknowledge(*again) == [(0, ACKNOWLEDGED)]
        return came - ends

    assert_in_time(late)


def test_a_message_that_is_given_back_wakes_who_waits(
    services: ThreeServices, topic: str, consumer: Consumer, in_line: Callable[[int], None]
) -> None:
    waiters = itertools.count(1)

    def late() -> float:
        put(services, topic, b"a")
        (leased,) = consumer.receive()
        waiting = in_background(lambda: consumer.receive(wait_ms=25_000))
        in_line(next(waiters))
        began = time.monotonic()
        assert consumer.change(300, leased) == []
        due = time.monotonic() + 0.3
        again, came = waiting()
        assert [(each.body, each.attempt) for each in again] == [(b"a", 2)]
        assert came >= began + 0.3 - ROUNDED_S
        assert consumer.acknowledge(*again) == []
        return came - due

    assert_in_time(late)


def test_a_stored_message_wakes_those_who_wait_in_the_order_they_came(
    services: ThreeServices, topic: str, consumer: Consumer, in_line: Callable[[int], None]
) -> None:
    outcomes = []
    for number in range(3):
        outcomes.append(in_background(lambda: consumer.receive(wait_ms=25_000, max_messages=1)))
        in_line(number + 1)
    for body in (b"a", b"b", b"c"):
        put(services, topic, body)
    assert [bodies(outcome()[0]) for outcome in outcomes] == [[b"a"], [b"b"], [b"c"]]


def test_those_in_line_hear_of_the_end_of_a_lease_that_one_beside_the_line_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_line: Callable[[int], None]
) -> None:
    """With a reader of its own: what watches for the lines of tests before it would wake its line, too."""

    async def sees_nothing(receives: receives.Receives, topic: str) -> None:
        del receives._watching[topic]

    monkeypatch.setattr(receives.Receives, "_watch", sees_nothing)
    with three_services(tmp_path / "store") as services:
        create_topic(services, "t")
        consumer = Consumer(services, "g", "t")
        consumer.receive()
        waiting = in_background(lambda: consumer.receive(timeout_s=90, wait_ms=30_000))
        in_line(1)
        put(services, "t", b"a")
        until = time.monotonic() + LONG_S
        while not consumer.receive(lease_ms=500):
            assert time.monotonic() < until
        ends = time.monotonic() + 0.5
        again, came = waiting()
    assert [(each.body, each.attempt) for each in again] == [(b"a", 2)]
    assert came - ends < LONG_S


def test_what_comes_to_a_retry_topic_wakes_who_waits(
    services: ThreeServices, topic: str, consumer: Consumer, in_line: Callable[[int], None]
) -> None:
    retry_topic = f"%RETRY%{consumer.group}_{topic}"
    create_topic(services, retry_topic)
    put(services, retry_topic, b"before")
    assert bodies(consumer.receive(wait_ms=25_000)) == [b"before"]
    waiting = in_background(lambda: consumer.receive(wait_ms=25_000))
    in_line(1)
    put(services, retry_topic, b"again")
    again, _ = waiting()
    assert bodies(again) == [b"again"]


def test_waiting_ends_when_time_is_up_or_before_the_deadline(consumer: Consumer) -> None:
    began = time.monotonic()
    assert consumer.receive(wait_ms=300) == []
    assert 0.3 - ROUNDED_S < time.monotonic() - began < LONG_S
    assert in_time(lambda timeout_s: consumer.receive(timeout_s, wait_ms=25_000)) == []


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        (" OR ".join(f"a = '{n}'" for n in range(984)), None),
        (" AND ".join(f"a <> 'x{n}'" for n in range(3_000)), None),
        ("NOT " * 10_000 + "TRUE", grpc.StatusCode.INVALID_ARGUMENT),
        ("(a = 1 OR " * 5_000 + "a = 2" + ")" * 5_000, grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["or", "and", "not", "nested"],
)
def test_a_long_filter_of_one_member_is_nothing_to_those_who_wait_with_it(
    services: ThreeServices,
    topic: str,
    consumer: Consumer,
    in_line: Callable[[int], None],
    expression: str,
    code: grpc.StatusCode | None,
) -> None:
    waits: dict[str, Any] = {"timeout_s": 120, "wait_ms": 30_000, "max_messages": 1}
    others = [in_background(lambda: consumer.receive(**waits)) for _ in range(2)]
    in_line(2)
    one = in_background(lambda: consumer.receive(**waits, sql_expression=expression))
    if code is None:
        in_line(3)
    else:
        assert one()[0].code() is code
    wanted = [b"0", b"1", b"2"][: 2 if code else 3]
    for body in wanted:
        put(services, topic, body, properties={"a": "983"})
    answers = [each()[0] for each in (*others, *([] if code else [one]))]
    assert sorted(body for answer in answers for body in bodies(answer)) == wanted


def test_a_message_is_made_a_dead_letter_by_its_handle(
    services: ThreeServices, topic: str, consumer: Consumer
) -> None:
    put(services, topic, b"a", b"b")
    a, b = consumer.receive()
    assert consumer.dead_letter(a) == []
    assert consumer.dead_letter(a) == [(0, ACKNOWLEDGED)]
    assert consumer.acknowledge(b) == []
    assert consumer.describe()[0].lag == 0
    answer = services.reader.Pull(
        reader_pb2.PullRequest(topic=f"%DLQ%{consumer.group}", wait_ms=10_000), timeout=20
    )
    dead = decode_record(answer.records)
    assert (dead.body, dead.reconsume_times, answer.record_count) == (b"a", 1, 1)
    letters = Consumer(services, "undertaker", f"%DLQ%{consumer.group}")
    (again,) = letters.receive(wait_ms=25_000)
    assert again.body == b"a"


def test_messages_of_a_message_group_come_one_after_the_other(
    services: ThreeServices, topic: str, consumer: Consumer, in_line: Callable[[int], None]
) -> None:
    create_group(services, consumer.group, orderly=True)
    for number in range(4):
        put(
            services, topic, b"%d" % number, queue_id=0,
            properties={"shard": "x"},
        )  # fmt: skip
    first = consumer.receive(attempt_id="one")
    assert bodies(first) == [b"0"]
    assert consumer.receive() == []
    assert consumer.receive(attempt_id="one") == first
    waiting = in_background(lambda: consumer.receive(wait_ms=25_000))
    in_line(1)
    assert consumer.acknowledge(*first) == []
    second, _ = waiting()
    assert bodies(second) == [b"1"]


def test_a_paused_group_receives_nothing(
    services: ThreeServices, topic: str, consumer: Consumer, refusal: Any,
    in_line: Callable[[int], None],
) -> None:  # fmt: skip
    consumer.receive()
    waiting = in_background(lambda: consumer.receive(wait_ms=25_000))
    in_line(1)
    pause = groups_pb2.UpdateGroupRequest(
        settings=groups_pb2.GroupSettings(name=consumer.group, consume_enable=False)
    )
    services.groups.UpdateGroup(pause, timeout=20)
    error, _ = waiting()
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    request = leases_pb2.ReceiveRequest(group=consumer.group, topic=topic)
    refused = refusal(services.leases.Receive, request)
    assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.info.reason == "GROUP_PAUSED"


def test_so_many_may_wait_and_no_more(
    services: ThreeServices, topic: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch,
    in_line: Callable[[int], None],
) -> None:  # fmt: skip
    monkeypatch.setattr(receives, "WAITERS_MAX", 2)
    waiting = [
        in_background(lambda: consumer.receive(wait_ms=25_000, max_messages=1)) for _ in range(2)
    ]
    in_line(2)
    with pytest.raises(grpc.RpcError) as refused:
        consumer.receive(wait_ms=5_000)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    put(services, topic, b"a", b"b")
    assert sorted(each()[0][0].body for each in waiting) == [b"a", b"b"]


def test_what_was_leased_to_a_caller_who_has_gone_is_handed_out_again(
    services: ThreeServices, topic: str, consumer: Consumer, in_line: Callable[[int], None]
) -> None:
    # An answer that leaves before its caller is known to have gone reaches nobody: its lease ends soon.
    request = leases_pb2.ReceiveRequest(
        group=consumer.group, topic=topic, wait_ms=20_000, lease_ms=2_000
    )
    calls = [services.leases.Receive.future(request, timeout=30) for _ in range(8)]
    in_line(8)
    for call in calls:
        call.cancel()
    put(services, topic, b"a")
    (leased,) = consumer.receive(wait_ms=25_000)
    assert leased.body == b"a"


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
def test_an_answer_that_its_caller_did_not_wait_for_is_handed_out_again(
    services: ThreeServices,
    topic: str,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """Its owner renews it as long as the owner lives, and knows nothing of it."""
    create_group(services, consumer.group)
    put(services, topic, b"a")
    leased, gone = threading.Event(), threading.Event()

    def received(batch: ReceivedBatch) -> bytes:
        answer = lease_servicer_received(batch)
        if batch.record_count and not leased.is_set():
            leased.set()
            gone.wait(60)
            time.sleep(0.2)
        return answer

    lease_servicer_received = lease_servicer.received
    monkeypatch.setattr(lease_servicer, "received", received)
    request = leases_pb2.ReceiveRequest(
        group=consumer.group, topic=topic, auto_renew=True, client_id="has-gone", lease_ms=60_000
    )
    for _ in range(TRIES):
        call = services.leases.Receive.future(request, timeout=1 if how == "deadline" else 60)
        if leased.wait(2 if how == "deadline" else 60):
            break  # else it had no time to come so far
    assert leased.is_set()
    if how == "cancelled":
        call.cancel()
    else:
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    gone.set()
    (again,) = consumer.receive(wait_ms=25_000)
    assert (again.body, again.attempt) == (b"a", 2)


def test_a_wrong_expression_leases_nothing(
    services: ThreeServices, topic: str, consumer: Consumer
) -> None:
    """Messages whose time had come again were handed out before the expression was looked at."""
    put(services, topic, b"a")
    (leased,) = consumer.receive()
    assert consumer.change(0, leased) == []
    for fields in ({"tag_expression": "||"}, {"sql_expression": "a >"}):
        with pytest.raises(grpc.RpcError) as refused:
            consumer.receive(**fields)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    (again,) = consumer.receive(wait_ms=5_000)
    assert again.attempt == 2


LONG = "c" * 513
OF_GROUP = {"group": "g", "topic": "topic"}


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        *(
            ("Receive", leases_pb2.ReceiveRequest(**OF_GROUP | wrong), field)
            for field, wrong in (
                ("group", {"group": "a b"}),
                ("max_messages", {"max_messages": -1}),
                ("max_bytes", {"max_bytes": -1}),
                ("lease_ms", {"lease_ms": 13 * 3_600_000}),
                ("client_id", {"auto_renew": True}),
                ("client_id", {"auto_renew": True, "client_id": LONG}),
                ("attempt_id", {"attempt_id": "a" * 256}),
                ("sql_expression", {"sql_expression": "a >"}),
                ("tag_expression", {"tag_expression": "||"}),
            )
        ),
        ("RenewLeases", leases_pb2.RenewLeasesRequest(client_ids=["c", LONG]), "client_ids"),
        ("ReleaseLeases", leases_pb2.ReleaseLeasesRequest(client_ids=["c", LONG]), "client_ids"),
        (
            "ChangeLeases",
            leases_pb2.ChangeLeasesRequest(**OF_GROUP, receipt_handles=b"x" * 40, duration_ms=-1),
            "duration_ms",
        ),
        *(
            (
                "Acknowledge",
                leases_pb2.AcknowledgeRequest(**OF_GROUP, receipt_handles=handles),
                "receipt_handles",
            )
            for handles in (b"", b"x" * 41, b"x" * 40 * 5_000)
        ),
    ],
)
def test_a_field_that_makes_no_sense_is_named(
    services: ThreeServices, refusal: Any, method: str, request_: Any, field: str
) -> None:
    refused = refusal(getattr(services.leases, method), request_)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.bad_request.field_violations[0].field == field


def test_an_unknown_topic_is_not_found_and_makes_no_group(
    services: ThreeServices, refusal: Any
) -> None:
    request = leases_pb2.ReceiveRequest(group="group-of-nothing", topic="no-such-topic")
    refused = refusal(services.leases.Receive, request)
    assert refused.code is grpc.StatusCode.NOT_FOUND
    assert refused.info.reason == "TOPIC_NOT_FOUND"
    describe = groups_pb2.DescribeGroupRequest(group="group-of-nothing")
    assert refusal(services.groups.DescribeGroup, describe).info.reason == "GROUP_NOT_FOUND"


def test_names_of_groups_that_are_made_up_fill_no_more_than_a_table(
    services: ThreeServices,
    topic: str,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Any,
) -> None:
    """Groups that there are go on, and one can be created on purpose."""
    consumer.receive()
    monkeypatch.setattr(reader_leases, "GROUPS_MAX", 1)
    request = leases_pb2.ReceiveRequest(group="made-up", topic=topic)
    refused = refusal(services.leases.Receive, request)

    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    describe = groups_pb2.DescribeGroupRequest(group="made-up")
    assert refusal(services.groups.DescribeGroup, describe).info.reason == "GROUP_NOT_FOUND"
    assert consumer.receive() == []
    create_group(services, "made-up")
    assert Consumer(services, "made-up", topic).receive() == []
