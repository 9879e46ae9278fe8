"""How much a streaming producer takes in, by a link and a writer simulated in virtual time."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import pytest
from steps_to_try import cases_to_try

from penstock.producing.batches import ProducerBatch
from penstock.producing.options import BATCH_BYTES_MAX, ProducerOptions
from penstock.producing.pace import QUEUEING_S, WINDOW_S, Pace
from penstock.producing.state import ProducerState
from penstock.proxies import Way
from penstock.retry import RetryPolicy
from penstock.v1 import writer_pb2
from storage.clock import SystemClock

BODY = bytes(4000)
MIB = 1 << 20


class Outcome(NamedTuple):
    """What came of a run: rates in bytes per second, the time from ``add`` to the answer in seconds."""

    rate: float
    p99_s: float


def answer(batch: ProducerBatch) -> writer_pb2.ProduceBatchResponse:
    return writer_pb2.ProduceBatchResponse(record_count=len(batch.records))


def run(
    options: ProducerOptions, *, seconds: float, link_s: float, drained: float, offered: float,
    queues: int = 1,
) -> Outcome:  # fmt: skip
    """Offer ``offered`` bytes a second to a writer that stores ``drained`` and is ``link_s`` away, both ways together."""
    state = ProducerState(options, SystemClock(), RetryPolicy(), lambda _: Way())
    now, writer_free_at, added_at, turn = 0.0, 0.0, 0.0, 0
    answers: list[tuple[float, int, ProducerBatch]] = []
    births: dict[int, list[float]] = {}
    waits: list[float] = []
    stored_bytes = sent = 0
    while now < seconds:
        while (batch := state.next_batch(now)) is not None:
            writer_free_at = max(writer_free_at, now) + batch.size / drained
            sent += 1
            heapq.heappush(answers, (writer_free_at + link_s, sent, batch))
        while answers and answers[0][0] <= now:
            _, _, batch = heapq.heappop(answers)
            stored_bytes += batch.size
            waits += [now - born for born in births.pop(id(batch))]
            state.answered(batch, answer(batch), now)
        while added_at <= now and state.has_room(now):
            batch, _ = state.add("t", BODY, queue_id=turn % queues, now=now, now_ms=0)
            births.setdefault(id(batch), []).append(now)
            turn += 1
            added_at = max(added_at, now - 0.001) + len(BODY) / offered
        now += 0.0005
    waits.sort()
    return Outcome(stored_bytes / seconds, waits[int(len(waits) * 0.99)])


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("queues", [1, 8])
@pytest.mark.parametrize("link_s", cases_to_try([0.005, 0.0002, 0.1]))
def test_a_producer_that_outruns_its_writer_loses_no_rate_and_waits_little(
    ordered: bool, queues: int, link_s: float
) -> None:
    """The writer is kept busy, or the link as full as batches in flight allow, and nothing waits long."""
    options = ProducerOptions(ordered=ordered)
    drained = 50 * MIB
    got = run(options, seconds=3, link_s=link_s, drained=drained, offered=100 * MIB, queues=queues)
    turn_s = link_s + BATCH_BYTES_MAX / drained  # a queue in order has one batch in flight
    possible = min(drained, queues * BATCH_BYTES_MAX / turn_s) if ordered else drained
    if not ordered:
        possible = min(possible, options.max_in_flight * options.batch_bytes / link_s)
    assert got.rate > 0.85 * possible
    assert got.p99_s < 4 * link_s + 0.1


def test_a_producer_slower_than_its_writer_never_waits() -> None:
    got = run(ProducerOptions(), seconds=2, link_s=0.001, drained=100 * MIB, offered=20 * MIB)
    assert got.rate > 0.95 * 20 * MIB
    assert got.p99_s < 0.015


def test_a_batch_is_late_by_twice_the_shortest_time_seen_and_the_queueing_allowed() -> None:
    pace = Pace()
    pace.answered(1.0, 1.2)
    assert not pace.is_late(2.0, 2.4 + QUEUEING_S / 2)
    assert pace.is_late(2.0, 2.4 + QUEUEING_S * 2)


def test_a_shortest_time_that_nothing_confirms_is_measured_again_after_a_drain() -> None:
    """The way got longer: after a while the longer time counts, taken when no queue of ours was there."""
    pace = Pace()
    pace.answered(0.0, 0.001)
    late = 0.001 + WINDOW_S + 0.2
    pace.answered(late - 0.1, late)
    assert pace.is_late(late, late)  # draining
    pace.answered(late + 0.05, late + 0.15)
    assert pace.is_late(late + 0.15, late + 0.15)  # that one was sent before the drain was over
    pace.answered(late + 0.2, late + 0.3)
    assert not pace.is_late(1000.0, 1000.2 + QUEUEING_S / 2)
    assert pace.is_late(1000.0, 1000.2 + QUEUEING_S * 2)
