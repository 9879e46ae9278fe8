"""What a streaming producer makes of its batches' answers, with none of the I/O: places, ages, failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import grpc
import pytest
from frame_outcomes import answer_with

from penstock import InvalidArgument, PenstockError, Unavailable, UnknownOutcome
from penstock.producing.batches import ProducerBatch
from penstock.producing.options import ProducerOptions
from penstock.producing.state import ProducerState
from penstock.sequences import RequestToken
from penstock.v1 import common_pb2, writer_pb2
from storage.format.producer_sequence import SEQUENCE_PROPERTY_SIZE

AWAY = Unavailable("the stream broke")
OPTIONS = ProducerOptions(
    max_in_flight=64, linger_ms=0, batch_bytes=1 << 20, ordered=True, delivery_timeout_s=30,
    record_bytes_max=1 << 20,
)  # fmt: skip


class Clock:
    wall_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        raise AssertionError("it is told the time")


def with_batch(
    bodies: Sequence[bytes], properties: Sequence[dict[str, str]] = (), clock: Clock | None = None
) -> tuple[ProducerState, ProducerBatch]:
    """A producer that has one batch, not sent yet."""
    state = ProducerState(OPTIONS, clock or Clock())
    for index, body in enumerate(bodies):
        given = properties[index] if properties else {}
        batch, _ = state.add("t", body, queue_id=0, now=0.0, now_ms=0, properties=given)
    return state, batch


def sent(state: ProducerState, now: float) -> writer_pb2.ProduceBatchRequest:
    batch = state.next_frame(now)
    assert batch is not None
    return writer_pb2.ProduceBatchRequest.FromString(batch.frame())


def stored(
    batch: ProducerBatch, *ranges: tuple[int, int], added: int = SEQUENCE_PROPERTY_SIZE
) -> writer_pb2.ProduceStreamResponse:
    """The answer of a writer: first queue offset and count of each range."""
    return answer_with(
        stored=writer_pb2.ProduceBatchResponse(
            commit_offset=1_000,
            end_commit_offset=1_000 + batch.size + added,
            record_count=sum(count for _, count in ranges),
            ranges=[
                writer_pb2.QueueRange(topic="t", first_queue_offset=first, count=count)
                for first, count in ranges
            ],
        )
    )


def refused(code: grpc.StatusCode, *, record_index: int = -1) -> writer_pb2.ProduceStreamResponse:
    failure = common_pb2.Failure(
        code=code.value[0], message="refused", record_index=record_index, retry_delay_ms=20
    )
    return answer_with(failure=failure)


def commit_offsets(batch: ProducerBatch, count: int) -> list[int]:
    return [batch.result(index).commit_offset for index in range(count)]


def test_where_the_first_record_is_dropped_the_next_is_longer() -> None:
    state, batch = with_batch([b"a", b"bb", b"ccc", b"d"])
    sizes = [len(record) for record in batch.records]
    sent(state, 1.0)
    state.answer(refused(grpc.StatusCode.INVALID_ARGUMENT, record_index=0), 2.0)
    sent(state, 3.0)
    state.answer(stored(batch, (5, 3)), 4.0)

    assert isinstance(batch.failure(0), InvalidArgument)
    third = 1_000 + sizes[1] + SEQUENCE_PROPERTY_SIZE
    found = [batch.result(index) for index in (1, 2, 3)]
    assert [each.commit_offset for each in found] == [1_000, third, third + sizes[2]]
    assert [each.queue_offset for each in found] == [5, 6, 7]


def test_a_batch_that_was_cut_short_and_completed_has_two_ranges() -> None:
    """Others' records are between, in the queue and in the log."""
    state, batch = with_batch([b"a", b"b", b"c", b"d"])
    sent(state, 1.0)
    answer = stored(batch, (5, 1), (16, 3), added=2 * SEQUENCE_PROPERTY_SIZE + 700)
    answer.outcomes[0].stored.repeated = True
    state.answer(answer, 2.0)

    assert [batch.result(index).queue_offset for index in range(4)] == [5, 16, 17, 18]
    assert commit_offsets(batch, 4) == [1_000, -1, -1, -1]
    assert all(batch.result(index).repeated for index in range(4))


def test_the_age_counts_from_the_first_time_that_no_answer_came() -> None:
    """A refused frame was not taken; what the wall clock is set to does not matter."""
    clock = Clock()
    state, batch = with_batch([b"a"], clock=clock)
    assert sent(state, 1.0).producer.age_ms == 0
    state.answer(refused(grpc.StatusCode.RESOURCE_EXHAUSTED), 2.0)
    assert sent(state, 5.0).producer.age_ms == 0
    assert state.settle(AWAY, 6.0) == []
    clock.wall_ms += 3_600_000
    assert sent(state, 8.0).producer.age_ms == 3_001
    assert state.settle(AWAY, 9.0) == []
    assert sent(state, 10.0).producer.age_ms == 5_001
    assert state.settle(AWAY, 40.0) == [batch]

    error = batch.failure(0)
    assert isinstance(error, UnknownOutcome)
    assert RequestToken.parse(error.token).first_ms == clock.wall_ms - 35_001


@pytest.mark.parametrize("sent_again", [False, True])
def test_what_is_left_of_a_batch_without_its_bad_record_was_never_sent(sent_again: bool) -> None:
    """Though the whole batch was, and had no answer: it is stored only as a request of its own."""
    state, batch = with_batch([b"a", b"b", b"c"])
    whole = sent(state, 1.0).producer
    assert state.settle(AWAY, 2.0) == []
    sent(state, 3.0)
    state.answer(refused(grpc.StatusCode.INVALID_ARGUMENT, record_index=1), 4.0)
    if sent_again:
        rest = sent(state, 5.0).producer
        assert (rest.sequence, rest.age_ms) == (whole.sequence + 1, 0)
        state.answer(refused(grpc.StatusCode.RESOURCE_EXHAUSTED), 6.0)
    assert state.settle(AWAY, 50.0) == [batch]

    errors: list[PenstockError | None] = [batch.failure(index) for index in range(3)]
    assert [type(error) for error in errors] == [Unavailable, InvalidArgument, Unavailable]


def test_a_batch_is_news_with_its_first_message_and_with_the_one_that_fills_it() -> None:
    state, news = ProducerState(replace(OPTIONS, batch_bytes=2_000), Clock()), list[bool]()
    for _ in range(6):
        news.append(state.is_news(*state.add("t", b"x" * 600, queue_id=0, now=0.0, now_ms=0)))
    assert news == [True, False, True, False, False, False]
