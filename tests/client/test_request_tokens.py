"""How requests that may be sent again are numbered, and how old they say they are; in virtual time, and over forks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import grpc
import pytest
from faulty_penstock import FaultyPenstock, rich_status

from penstock import (
    Client,
    DeliveryFailed,
    ResourceExhausted,
    RetryPolicy,
    Unavailable,
    UnknownOutcome,
)
from penstock.calls import produce
from penstock.calls.call import Attempts
from penstock.sequences import SPAN_MAX, RequestToken, Sequences
from penstock.v1 import writer_pb2
from storage.clock import SystemClock

LOST = (grpc.StatusCode.UNAVAILABLE, "the connection broke")
NOT_SENT = (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
BUSY = (grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
FORKS = """
import os
from penstock.sequences import Sequences
from storage.clock import SystemClock

sequences = Sequences(SystemClock())
print(sequences.begin(), flush=True)
child = os.fork()
if child:
    os.waitpid(child, 0)
print(sequences.begin(), flush=True)
if not child:
    os._exit(0)
"""


class Failed(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        self._code, self._message = code, message

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._message

    def trailing_metadata(self) -> Any:
        details = rich_status(self._code, self._message, retry_delay_ms=5)
        return (("grpc-status-details-bin", details.SerializeToString()),)


class TwoClocks:
    """A wall clock that is set while time passes."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.seconds = 100.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def passes(self, seconds: float, *, wall_is_set_by_ms: int = 0) -> None:
        self.seconds += seconds
        self.wall_ms += int(seconds * 1_000) + wall_is_set_by_ms


def attempts_of(
    clock: TwoClocks, sequences: Sequences | None = None, *, token: str = "", timeout_s: float = 60
) -> Attempts:
    return Attempts(
        produce.store_batch(b"records", bytes_max=100, token=token), RetryPolicy(),
        timeout_s=timeout_s, clock=clock, sequences=sequences or Sequences(clock),
    )  # fmt: skip


def sent(attempts: Attempts) -> writer_pb2.ProducerSequence:
    """Send it: what the request says of its producer."""
    field, _ = attempts.request()
    return writer_pb2.ProduceBatchRequest.FromString(field).producer


@pytest.mark.parametrize("failure", [NOT_SENT, BUSY])
def test_an_attempt_that_was_never_taken_is_none(failure: tuple[grpc.StatusCode, str]) -> None:
    """What is sent after it is sent for the first time, and not doubted by a writer that has forgotten much."""
    clock = TwoClocks()
    attempts = attempts_of(clock)
    assert sent(attempts).age_ms == 0
    clock.passes(3)
    attempts.after(Failed(*failure))
    assert sent(attempts).age_ms == 0

    clock.passes(2)
    attempts.after(Failed(*LOST))
    clock.passes(1)
    assert sent(attempts).age_ms == 3_001
    attempts.after(Failed(*failure))
    clock.passes(1)
    assert sent(attempts).age_ms == 4_001


@pytest.mark.parametrize("set_by_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_changes_no_age(set_by_ms: int) -> None:
    clock = TwoClocks()
    attempts = attempts_of(clock)
    sent(attempts)
    attempts.after(Failed(*LOST))
    clock.passes(2, wall_is_set_by_ms=set_by_ms)
    assert sent(attempts).age_ms == 2_001

    clock.passes(70)
    with pytest.raises(UnknownOutcome) as caught:
        attempts.after(Failed(*LOST))
    clock.passes(5)
    again = attempts_of(clock, token=caught.value.token)
    assert sent(again).age_ms == 77_002
    again.after(Failed(*LOST))
    clock.passes(2, wall_is_set_by_ms=set_by_ms)
    assert sent(again).age_ms == 79_002


def test_a_machine_that_sleeps_between_attempts_counts_its_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The monotonic clock stops, and what the wall clock does is not looked at."""
    slept_ms = [7_000]  # before the request
    monkeypatch.setattr("penstock.sequences.suspended_ms", lambda: slept_ms[0])
    clock = TwoClocks()
    attempts = attempts_of(clock)
    sent(attempts)
    slept_ms[0] += 600_000
    attempts.after(Failed(*LOST))
    clock.passes(2)
    slept_ms[0] += 60_000
    assert sent(attempts).age_ms == 662_001

    clock.passes(70)
    with pytest.raises(UnknownOutcome) as caught:
        attempts.after(Failed(*LOST))
    clock.passes(0, wall_is_set_by_ms=3_000)
    again = attempts_of(clock, token=caught.value.token)
    slept_ms[0] += 1_000
    assert sent(again).age_ms == 662_001 + 70_000 + 3_000 + 1_000 + 1


def test_a_request_that_is_left_to_be_asked_for_is_the_last_of_its_producer() -> None:
    """However many follow: the writer knows the last 512 of a producer."""
    clock = TwoClocks()
    sequences = Sequences(clock)
    with pytest.raises(UnknownOutcome) as caught, attempts_of(clock, sequences) as attempts:
        asked = sent(attempts)
        clock.passes(70)
        attempts.after(Failed(*LOST))
    token = RequestToken.parse(caught.value.token)
    assert (token.producer_id, token.sequence) == (asked.producer_id, asked.sequence)
    assert {sequences.begin().producer_id for _ in range(100)}.isdisjoint({token.producer_id})

    with attempts_of(clock, sequences) as attempts:
        ended = sent(attempts)
        with pytest.raises(Unavailable):
            clock.passes(70)
            attempts.after(Failed(*NOT_SENT))
    assert sequences.begin().producer_id == ended.producer_id


def test_a_producer_begins_anew_only_when_a_request_is_left_behind() -> None:
    sequences = Sequences(SystemClock())
    first = sequences.begin()
    ended = [sequences.begin() for _ in range(SPAN_MAX - 1)]
    assert [each.sequence for each in ended] == list(range(2, SPAN_MAX + 1))
    assert {each.producer_id for each in ended} == {first.producer_id}
    for each in ended:
        sequences.end(each)
    anew = sequences.begin()
    assert (anew.sequence, anew.producer_id == first.producer_id) == (1, False)
    sequences.end(first)  # of the producer that is no more
    for _ in range(3 * SPAN_MAX):
        sequences.end(anew)
        following = sequences.begin()
        assert following[:3] == (anew.producer_id, anew.sequence + 1, 0)
        anew = following


@pytest.mark.parametrize(
    ("failure", "raised"), [(NOT_SENT, Unavailable), (BUSY, ResourceExhausted)]
)
def test_a_produce_that_would_have_no_time_to_be_answered_is_not_tried_again(
    failure: tuple[grpc.StatusCode, str], raised: type[Exception]
) -> None:
    """Its end would leave open whether it is stored, and it certainly is not."""
    clock = TwoClocks()
    attempts = attempts_of(clock, timeout_s=1)
    assert attempts.after(Failed(*failure)) > 0
    clock.passes(0.95)
    with pytest.raises(raised):
        attempts.after(Failed(*failure))


def test_a_process_that_was_forked_is_another_producer() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True
    )
    tokens = list(map(RequestToken.parse, run.stdout.split()))
    assert sorted(token.sequence for token in tokens) == [1, 1, 2]
    assert len({token.producer_id for token in tokens}) == 2


@pytest.mark.parametrize("as_stream", [False, True])
def test_the_client_goes_on_as_another_producer_after_an_unknown_outcome(
    faulty: FaultyPenstock, as_stream: bool
) -> None:
    faulty.answers_lost["Produce"] = 10_000
    with Client(**faulty.addresses, timeout_s=1) as client:
        client.wait_ready(30)
        if as_stream:
            producer = client.producer(delivery_timeout_s=1, linger_ms=0)
            faulty.answers_lost["ProduceBatch"] = 10_000
            error = producer.send("orders", b"x", queue_id=0).exception(30)
            faulty.answers_lost["ProduceBatch"] = 0
            producer.send("orders", b"y", queue_id=0).result(30)
            with pytest.raises(DeliveryFailed):
                producer.close()
        else:
            with pytest.raises(UnknownOutcome) as caught:
                client.produce("orders", b"x", queue_id=0)
            error = caught.value
            faulty.answers_lost["Produce"] = 0
            client.produce("orders", b"y", queue_id=0, timeout_s=30)
    assert isinstance(error, UnknownOutcome)
    token = RequestToken.parse(error.token)
    first, last = faulty.requests[0], faulty.requests[-1]
    assert (token.producer_id, token.sequence) == (first.producer_id, first.sequence)
    assert last.producer_id != token.producer_id
    assert faulty.bodies("orders", 0) == [b"x", b"y"]
