"""What a caller takes is counted against each of its limits; a limit that changes is in force at once."""

import math
from contextlib import ExitStack

import pytest

from services.limits.limiter import ConnectionLimits, UserLimits
from services.limits.meter import BURST_S, REFUSALS_PER_S, REFUSALS_WAIT_S, WAITING_MAX, Meter
from services.rpc.status import LimitExceeded, retry_delay_ms
from storage.accounts.limits import LIMIT_NAMES, Limits, checked_limits
from storage.accounts.rules import User, UserKind
from storage.errors import InvalidMessage


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def meter_of(clock):
    return lambda **limits: Meter("user 'ann'", Limits(**limits), clock)


def calls_until_refused(meter, clock, seconds, size=0):
    """Make as many calls as there may be in so many seconds, one after another."""
    made, end = 0, clock.now + seconds
    while clock.now < end:
        try:
            meter.begin(size, "a")
        except LimitExceeded as error:
            clock.now += retry_delay_ms(error) / 1e3
            continue
        meter.end(size, "a")
        made += 1
    return made


@pytest.mark.parametrize(
    ("limits", "size", "a_second"),
    [({"requests_per_second": 50}, 0, 50), ({"bytes_per_second": 5_000}, 100, 50)],
)
def test_calls_are_as_many_as_the_rate_allows_and_a_burst(meter_of, clock, limits, size, a_second):
    made = calls_until_refused(meter_of(**limits), clock, 20.0, size)
    assert made == pytest.approx(a_second * (20 + BURST_S), rel=0.02)


def test_a_request_larger_than_a_second_s_bytes_passes_and_is_made_up_for(meter_of, clock):
    meter = meter_of(bytes_per_second=1_000)
    meter.begin(5_000, "a")
    meter.end(5_000, "a")
    with pytest.raises(LimitExceeded) as refused:
        meter.begin(1, "a")
    assert retry_delay_ms(refused.value) == pytest.approx(4_000, abs=10)
    clock.now += 4.01
    meter.begin(1, "a")


@pytest.mark.parametrize(
    ("limits", "calls"),
    [
        ({"calls_max": 2}, [(9, "a"), (9, "b")]),
        ({"call_bytes_max": 100}, [(60, "a"), (40, "a")]),
        ({"connections_max": 2}, [(9, "a"), (9, "a"), (9, "b")]),
    ],
)
def test_what_is_under_way_is_bounded_and_free_again_when_it_ends(meter_of, limits, calls):
    meter = meter_of(**limits)
    for call in calls:
        meter.begin(*call)
    with pytest.raises(LimitExceeded, match="user 'ann'"):
        meter.begin(1, "c")
    for call in calls:
        meter.end(*call)
    assert meter.is_idle
    meter.begin(1, "c")


def test_one_call_may_hold_more_than_all_together(meter_of):
    meter = meter_of(call_bytes_max=100)
    meter.begin(5_000, "a")
    with pytest.raises(LimitExceeded):
        meter.begin(1, "a")


def test_frames_and_answers_count_and_a_stream_waits_for_them(meter_of, clock):
    meter = meter_of(requests_per_second=10, bytes_per_second=1_000)
    for _ in range(15):
        meter.take_frame(1)
    assert meter.wait_s() == pytest.approx(0.5)
    meter.take_answer(3_000)
    assert meter.wait_s() == pytest.approx(2.0, abs=0.02)
    clock.now += 2.1
    assert meter.wait_s() == 0.0


def test_a_changed_limit_is_in_force_at_once(meter_of):
    meter = meter_of(requests_per_second=1)
    meter.begin(0, "a")
    meter.begin(0, "a")
    with pytest.raises(LimitExceeded):
        meter.begin(0, "a")
    meter.limit(Limits(requests_per_second=0, calls_max=3))
    meter.begin(0, "a")
    with pytest.raises(LimitExceeded, match="3 calls"):
        meter.begin(0, "a")


def test_refusals_are_paced_for_who_calls_again_at_once(meter_of):
    meter = meter_of()
    waits = [wait_s_of_refusal(meter) for _ in range(math.ceil(REFUSALS_PER_S * 2))]
    assert not any(waits[:REFUSALS_PER_S])
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(1.0, abs=0.01)
    assert max(wait_s_of_refusal(meter) for _ in range(REFUSALS_PER_S * 8)) <= REFUSALS_WAIT_S


def wait_s_of_refusal(meter):
    with meter.refusal_wait_s() as wait_s:
        return wait_s


@pytest.mark.parametrize(
    ("calls_max", "calls", "most"), [(3_072, 2_000, 3_072), (2, 1, WAITING_MAX)]
)
def test_calls_and_refusals_that_wait_are_together_no_more_than_one_caller_may_have(
    meter_of, calls_max, calls, most
):
    meter = meter_of(calls_max=calls_max)
    for _ in range(calls):
        meter.begin(0, "a")
    with ExitStack() as stack:
        waits = [stack.enter_context(meter.refusal_wait_s()) for _ in range(REFUSALS_PER_S * 7)]
        waiting = sum(wait_s > 0 for wait_s in waits) + REFUSALS_PER_S  # which do not wait long
        assert calls + waiting == pytest.approx(most, abs=1)
    assert wait_s_of_refusal(meter) > 0


def user(name="ann", kind=UserKind.NORMAL, **limits):
    return User(name=name, kind=kind, limits=Limits(**limits))


def test_a_user_s_own_limits_come_before_those_of_the_service_which_services_have_not():
    users = UserLimits(Limits(requests_per_second=7, calls_max=1), lambda *_: None)
    meter = users.meter(user(calls_max=2))
    meter.begin(0, "a")
    meter.begin(0, "a")
    with pytest.raises(LimitExceeded, match="2 calls"):
        meter.begin(0, "a")
    assert users.meter(user(calls_max=0)) is meter
    meter.begin(0, "a")
    assert users.meter(user("bob")) is not meter
    assert users.meter(user("gateway", UserKind.SERVICE)) is None


@pytest.mark.parametrize(
    "given",
    [{"calls": 1}, {"calls_max": -1}, {"calls_max": 1.5}, {"calls_max": True}, {"calls_max": "1"}],
)
def test_numbers_that_are_no_limits_are_refused(given):
    with pytest.raises(InvalidMessage, match="limits"):
        checked_limits(given)


def test_limits_over_others_keep_what_is_given():
    assert Limits(calls_max=0).over(Limits(calls_max=5, connections_max=3)) == Limits(
        calls_max=0, connections_max=3
    )
    assert len(LIMIT_NAMES) == 5


class Call:
    """A call of which a connection's limits ask its peer alone."""

    request_bytes = 0
    is_stream = False

    def __init__(self, peer):
        self.context = self.method = self
        self.peer = lambda: peer


async def answered(_call):
    return b""


def test_connections_that_take_nothing_are_forgotten(monkeypatch, background):
    monkeypatch.setattr("services.limits.limiter.CONNECTIONS_KNOWN_MAX", 10)
    limits = ConnectionLimits(Limits(calls_max=1), lambda *_: None)

    async def many():
        for number in range(50):
            await limits(Call(f"ipv4:10.0.0.1:{number}"), answered)

    background.run(many())
    assert len(limits._meters) <= 10
