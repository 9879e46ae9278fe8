"""What a streaming producer makes of its batches' answers, with none of the I/O: places, ages, failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import grpc
import pytest
from faulty_penstock import rich_status
from google.rpc import status_pb2

from penstock import ClientClosed, InvalidArgument, UnknownOutcome
from penstock.producing.batches import ProducerBatch
from penstock.producing.options import ProducerOptions
from penstock.producing.state import ProducerState
from penstock.proxies import Way
from penstock.retry import RetryPolicy
from penstock.sequences import RequestToken
from penstock.v1 import writer_pb2
from penstock.wire import PRODUCE_BATCH
from storage.format.producer_sequence import SEQUENCE_PROPERTY_SIZE

AWAY, BUSY = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
INVALID = grpc.StatusCode.INVALID_ARGUMENT
OPTIONS = ProducerOptions(
    max_in_flight=64, linger_ms=0, batch_bytes=1 << 20, ordered=True, delivery_timeout_s=30,
    record_bytes_max=1 << 20,
)  # fmt: skip


class Clock:
    """The clock of attempts: both are what they are set to."""

    wall_ms = 1_700_000_000_000
    now = 0.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.now


class Given(NamedTuple):
    """A producer that has one batch, not sent yet."""

    state: ProducerState
    batch: ProducerBatch
    clock: Clock

    def send(self, now: float) -> writer_pb2.ProduceBatchRequest:
        """Send the batch; return the request."""
        self.clock.now = now
        assert self.state.next_batch(now) is self.batch
        assert self.batch.attempts is not None
        request = PRODUCE_BATCH.serialize(self.batch.attempts.request())
        return writer_pb2.ProduceBatchRequest.FromString(request)

    def answer(self, answer: writer_pb2.ProduceBatchResponse, now: float) -> None:
        self.clock.now = now
        self.state.answered(self.batch, answer, now)

    def fail(self, code: grpc.StatusCode, now: float, *, record_index: int = -1) -> None:
        """Have the attempt under way fail."""
        self.clock.now = now
        metadata = {"record_index": str(record_index)}
        status = rich_status(code, "refused", retry_delay_ms=20, metadata=metadata)
        self.state.failed(self.batch, FailedCall(code, status), now)


class FailedCall:
    def __init__(self, code: grpc.StatusCode, status: status_pb2.Status) -> None:
        self._code, self._status = code, status

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._status.message

    def trailing_metadata(self) -> list[tuple[str, bytes]]:
        return [("grpc-status-details-bin", self._status.SerializeToString())]


def with_batch(bodies: Sequence[bytes], properties: Sequence[dict[str, str]] = ()) -> Given:
    clock = Clock()
    state = ProducerState(OPTIONS, clock, RetryPolicy(), lambda _: Way())
    for index, body in enumerate(bodies):
        given = properties[index] if properties else {}
        batch, _ = state.add("t", body, queue_id=0, now=0.0, now_ms=0, properties=given)
    return Given(state, batch, clock)


def stored(
    batch: ProducerBatch, *ranges: tuple[int, int], added: int = SEQUENCE_PROPERTY_SIZE
) -> writer_pb2.ProduceBatchResponse:
    """The answer of a writer: first queue offset and count of each range."""
    return writer_pb2.ProduceBatchResponse(
        commit_offset=1_000,
        end_commit_offset=1_000 + batch.size + added,
        record_count=sum(count for _, count in ranges),
        ranges=[
            writer_pb2.QueueRange(topic="t", first_queue_offset=first, count=count)
            for first, count in ranges
        ],
    )


def commit_offsets(batch: ProducerBatch, count: int) -> list[int]:
    return [batch.result(index).commit_offset for index in range(count)]


def test_where_the_first_record_is_dropped_the_next_is_longer() -> None:
    given = with_batch([b"a", b"bb", b"ccc", b"d"])
    batch = given.batch
    sizes = [len(record) for record in batch.records]
    given.send(1.0)
    given.fail(INVALID, 2.0, record_index=0)
    given.send(3.0)
    given.answer(stored(batch, (5, 3)), 4.0)

    assert isinstance(batch.failure(0), InvalidArgument)
    third = 1_000 + sizes[1] + SEQUENCE_PROPERTY_SIZE
    found = [batch.result(index) for index in (1, 2, 3)]
    assert [each.commit_offset for each in found] == [1_000, third, third + sizes[2]]
    assert [each.queue_offset for each in found] == [5, 6, 7]


def test_a_batch_that_was_cut_short_and_completed_has_two_ranges() -> None:
    """Others' records are between, in the queue and in the log."""
    given = with_batch([b"a", b"b", b"c", b"d"])
    batch = given.batch
    given.send(1.0)
    answer = stored(batch, (5, 1), (16, 3), added=2 * SEQUENCE_PROPERTY_SIZE + 700)
    answer.repeated = True
    given.answer(answer, 2.0)

    assert [batch.result(index).queue_offset for index in range(4)] == [5, 16, 17, 18]
    assert commit_offsets(batch, 4) == [1_000, -1, -1, -1]
    assert all(batch.result(index).repeated for index in range(4))


def test_the_age_counts_from_the_first_time_that_no_answer_came() -> None:
    """A refused batch was not taken; what the wall clock is set to does not matter."""
    given = with_batch([b"a"])
    batch, clock = given.batch, given.clock
    assert given.send(1.0).producer.age_ms == 0
    given.fail(BUSY, 2.0)
    assert given.send(5.0).producer.age_ms == 0
    given.fail(AWAY, 6.0)
    clock.wall_ms += 3_600_000
    assert given.send(8.0).producer.age_ms == 3_001
    given.fail(AWAY, 9.0)
    assert given.send(10.0).producer.age_ms == 5_001
    assert not batch.done
    given.fail(AWAY, 40.0)

    error = batch.failure(0)
    assert isinstance(error, UnknownOutcome)
    assert RequestToken.parse(error.token).first_ms == clock.wall_ms - 35_001


@pytest.mark.parametrize("sent_again", [False, True])
def test_what_is_left_of_a_batch_without_its_bad_record_was_never_sent(sent_again: bool) -> None:
    """Though the whole batch was, and had no answer: it is stored only as a request of its own."""
    given = with_batch([b"a", b"b", b"c"])
    whole = given.send(1.0).producer
    given.fail(AWAY, 2.0)
    given.send(3.0)
    given.fail(INVALID, 4.0, record_index=1)
    if sent_again:
        rest = given.send(5.0).producer
        assert (rest.sequence, rest.age_ms) == (whole.sequence + 1, 0)
        given.fail(BUSY, 6.0)
    given.state.give_up(ClientClosed("closed"))

    errors = [type(given.batch.failure(index)) for index in range(3)]
    assert errors == [ClientClosed, InvalidArgument, ClientClosed]


def test_what_is_under_way_when_the_producer_is_closed_may_be_stored() -> None:
    """What was refused before, or never sent, is not."""
    for refused in (False, True):
        given = with_batch([b"a"])
        given.send(1.0)
        if refused:
            given.fail(BUSY, 2.0)
        unsent, _ = given.state.add("t", b"b", queue_id=0, now=2.0, now_ms=0)
        assert given.state.give_up(ClientClosed("closed")) == [given.batch, unsent]

        error = given.batch.failure(0)
        assert isinstance(error, ClientClosed if refused else UnknownOutcome)
        assert isinstance(unsent.failure(0), ClientClosed)
        given.answer(stored(given.batch, (0, 1)), 3.0)  # it comes too late
        assert given.batch.failure(0) is error


def test_a_batch_is_news_with_its_first_message_and_with_the_one_that_fills_it() -> None:
    """Unless its queue has a batch in flight, whose answer decides."""
    options = replace(OPTIONS, batch_bytes=2_000)
    state, news = ProducerState(options, Clock(), RetryPolicy(), lambda _: Way()), list[bool]()
    for n in range(12):
        news.append(state.is_news(*state.add("t", b"x" * 600, queue_id=0, now=0.0, now_ms=0)))
        if n == 5:
            assert state.next_batch(0.0) is not None
    assert news == [True, False, True, False, False, False] + [False] * 6
