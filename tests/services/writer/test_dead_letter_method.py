"""AppendDeadLetters over gRPC: copies are there when it answers; requests that make no sense are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from three_services import ThreeServices, three_services

from penstock.v1 import common_pb2, dead_letters_pb2, dead_letters_pb2_grpc, reader_pb2, writer_pb2
from services.writer.dead_letters import RECORDS_MAX
from storage.format.record import decode_record


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    store = tmp_path_factory.mktemp("dead") / "store"
    with three_services(store, flush_mode="sync") as running:
        running.writer.CreateTopic(
            writer_pb2.CreateTopicRequest(name="t", queue_count=1), timeout=20
        )
        yield running


@pytest.fixture(scope="module")
def stub(services: ThreeServices) -> Iterator[Any]:
    with grpc.insecure_channel(services.running.writer) as channel:
        yield dead_letters_pb2_grpc.DeadLettersStub(channel)


def request(group: str, offsets: list[int], times: list[int] | None = None) -> Any:
    return dead_letters_pb2.AppendDeadLettersRequest(
        group=group,
        commit_offsets=offsets,
        reconsume_times=[0] * len(offsets) if times is None else times,
    )


def test_copies_are_flushed_and_served(services: ThreeServices, stub: Any) -> None:
    messages = [common_pb2.Message(topic="t", body=b"%d" % n, queue_id=0) for n in range(3)]
    results = services.writer.Produce(
        writer_pb2.ProduceRequest(messages=messages), timeout=20
    ).results
    offsets = [result.commit_offset for result in results]
    answer = stub.AppendDeadLetters(
        request("g", [offsets[2], 7, offsets[0]], [4, 0, 0]), timeout=20
    )
    assert answer.record_count == 2
    assert [each.index for each in answer.uncopied] == [1]
    status = services.writer.GetWriterStatus(writer_pb2.GetWriterStatusRequest(), timeout=20)
    assert status.flushed_offset == status.appended_offset
    pulled = services.reader.Pull(reader_pb2.PullRequest(topic="%DLQ%g", wait_ms=5_000), timeout=20)
    first = decode_record(pulled.records)
    assert (first.body, first.reconsume_times, pulled.record_count) == (b"2", 4, 2)


def test_nothing_to_copy_makes_no_topic(services: ThreeServices, stub: Any) -> None:
    answer = stub.AppendDeadLetters(request("nobody", [7]), timeout=20)
    assert (answer.record_count, len(answer.uncopied)) == (0, 1)
    topics = services.writer.ListTopics(writer_pb2.ListTopicsRequest(), timeout=20).topics
    assert "%DLQ%nobody" not in [topic.name for topic in topics]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (request("", [0]), "group"),
        (request("a b", [0]), "group"),
        (request("g", [0], []), "reconsume_times"),
        (request("g", [0] * (RECORDS_MAX + 1)), "commit_offsets"),
    ],
)
def test_what_makes_no_sense_is_refused(
    stub: Any, refusal: Callable[..., Any], asked: Any, field: str
) -> None:
    refused = refusal(stub.AppendDeadLetters, asked)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.bad_request.field_violations[0].field == field
