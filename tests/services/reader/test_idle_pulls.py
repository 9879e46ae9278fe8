"""Consumers of quiet queues cost nothing while another queue is busy, and get their own message at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_processes import until
from three_services import ThreeServices, three_services

from penstock.v1 import common_pb2, reader_pb2, writer_pb2
from services.reader.pulls import PullQuestion, Pulls

QUEUES = 6
MESSAGES = 60


@pytest.fixture(name="services")
def _services(tmp_path: Path) -> Iterator[ThreeServices]:
    with three_services(tmp_path) as services:
        services.writer.CreateTopic(writer_pb2.CreateTopicRequest(name="t", queue_count=QUEUES))
        for queue_id in range(QUEUES):
            put(services, queue_id)
        yield services


def put(services: ThreeServices, queue_id: int) -> None:
    message = common_pb2.Message(topic="t", body=b"x", queue_id=queue_id)
    services.writer.Produce(writer_pb2.ProduceRequest(messages=[message]), timeout=20)


def test_who_waits_at_a_quiet_queue_is_left_alone(
    services: ThreeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of another queue does not wake it, of its own does. Once a second everybody looks."""
    asked: Counter[int] = Counter()
    ask = Pulls._ask

    def counted(pulls: Pulls, question: PullQuestion) -> Any:
        asked[question.queue_id] += 1
        return ask(pulls, question)

    monkeypatch.setattr(Pulls, "_ask", counted)
    polls = [
        services.reader.Pull.future(
            reader_pb2.PullRequest(topic="t", queue_id=queue_id, queue_offset=1, wait_ms=30_000)
        )
        for queue_id in range(1, QUEUES)
    ]
    follow = reader_pb2.PullStreamRequest(topic="t", queue_id=0, queue_offset=1, follow=True)
    stream = services.reader.PullStream(follow)
    until(lambda: len(asked) == QUEUES)
    quiet_before = sum(asked[queue_id] for queue_id in range(1, QUEUES))
    received = 0
    for number in range(MESSAGES):
        put(services, 0)
        while received <= number:
            received += next(stream).record_count
    quiet = sum(asked[queue_id] for queue_id in range(1, QUEUES)) - quiet_before
    assert quiet < MESSAGES * (QUEUES - 1) / 2

    for queue_id, poll in enumerate(polls, 1):
        assert not poll.done()
        put(services, queue_id)
        assert poll.result(20).record_count == 1
    stream.cancel()
