"""What was acknowledged before a read was asked is in its answer, however late it is dispatched."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from three_services import ThreeServices, in_time, three_services

from penstock.v1 import common_pb2, reader_pb2, writer_pb2
from storage import indexer
from storage.index.builder import IndexBuilder
from storage.queues.dispatch import DispatchWorker

DISPATCH_DELAY_S = 0.15
INDEX_DELAY_S = 0.1


@pytest.fixture(scope="module", params=["async with pool", "sync"])
def services(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ThreeServices]:
    """Services whose dispatch and index lag on purpose."""
    with pytest.MonkeyPatch.context() as patch:
        dispatch_round, index_step = DispatchWorker.work, IndexBuilder.step

        def late_round(worker: Any) -> float | None:
            time.sleep(DISPATCH_DELAY_S)
            return dispatch_round(worker)

        def late_step(builder: Any) -> bool:
            time.sleep(INDEX_DELAY_S)
            return index_step(builder)

        patch.setattr(DispatchWorker, "work", late_round)
        patch.setattr(DispatchWorker, "dispatch_few", lambda *_: False)
        patch.setattr(IndexBuilder, "step", late_step)
        patch.setattr(indexer, "GATHER_S", 60.0)  # unless somebody asks
        directory: Path = tmp_path_factory.mktemp("lagging")
        pool = {"transient_pool": True, "transient_pool_directory": str(directory)}
        mode = request.param.partition(" ")[0]
        changes = pool if "pool" in request.param else {}
        with three_services(directory / "store", flush_mode=mode, **changes) as running:
            yield running


@pytest.fixture
def topic(services: ThreeServices, request: pytest.FixtureRequest) -> str:
    name = request.node.originalname[-100:]
    create = writer_pb2.CreateTopicRequest(name=name, queue_count=2)
    try:
        services.writer.CreateTopic(create, timeout=20)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS
    return name


def put(services: ThreeServices, topic: str, body: bytes = b"x") -> Any:
    message = common_pb2.Message(topic=topic, body=body, queue_id=0, keys=["key"])
    request = writer_pb2.ProduceRequest(messages=[message])
    return services.writer.Produce(request, timeout=20).results[0]


def test_a_pull_finds_the_message_stored_just_before(services: ThreeServices, topic: str) -> None:
    """The first of a queue, which has no file yet, and one after others alike."""
    for _ in range(3):
        stored = put(services, topic)
        request = reader_pb2.PullRequest(topic=topic, queue_offset=stored.queue_offset, decode=True)
        response = services.reader.Pull(request, timeout=20)
        assert response.status == reader_pb2.FOUND
        assert [r.queue_offset for r in response.decoded] == [stored.queue_offset]


def test_a_stream_that_does_not_follow_ends_after_the_last(
    services: ThreeServices, topic: str
) -> None:
    stored = [put(services, topic).queue_offset for _ in range(5)]
    request = reader_pb2.PullStreamRequest(topic=topic, queue_offset=stored[0], decode=True)
    found = [
        record.queue_offset
        for response in services.reader.PullStream(request, timeout=20)
        for record in response.decoded
    ]
    assert found == stored


def test_offsets_ids_and_progress_know_it(services: ThreeServices, topic: str) -> None:
    last = put(services, topic)
    latest = reader_pb2.QueryOffsetRequest(topic=topic, position=reader_pb2.LATEST)
    assert services.reader.QueryOffset(latest, timeout=20).queue_offset == last.queue_offset + 1

    last = put(services, topic, b"by id")
    by_id = reader_pb2.GetMessageRequest(message_id=last.message_id)
    assert services.reader.GetMessage(by_id, timeout=20).record.body == b"by id"

    last = put(services, topic)
    commit = reader_pb2.CommitOffsetRequest(
        group="g", topic=topic, queue_offset=last.queue_offset + 1
    )
    services.reader.CommitOffset(commit, timeout=20)
    put(services, topic)
    fetch = reader_pb2.FetchOffsetsRequest(group="g", topic=topic)
    assert [o.lag for o in services.reader.FetchOffsets(fetch, timeout=20).offsets] == [1]


def test_a_query_by_key_finds_it(services: ThreeServices, topic: str) -> None:
    stored = [put(services, topic).queue_offset for _ in range(2)]
    query = reader_pb2.QueryByKeyRequest(topic=topic, key="key", decode=True)
    response = services.reader.QueryByKey(query, timeout=20)
    assert {record.queue_offset for record in response.decoded} >= set(stored)


def test_a_caller_s_deadline_is_kept(
    services: ThreeServices, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer without the message, but an answer."""
    settled = put(services, topic)
    services.reader.GetMessage(
        reader_pb2.GetMessageRequest(commit_offset=settled.commit_offset), timeout=20
    )
    held, let_go = threading.Event(), threading.Event()
    dispatch_round = DispatchWorker.work

    def hold(worker: Any) -> float | None:
        held.set()
        let_go.wait(30)
        return dispatch_round(worker)

    monkeypatch.setattr(DispatchWorker, "work", hold)
    try:
        put(services, topic)  # ends the round that is under way
        assert held.wait(20)
        stored = put(services, topic)
        request = reader_pb2.PullRequest(topic=topic, queue_offset=stored.queue_offset)
        answer = in_time(lambda timeout_s: services.reader.Pull(request, timeout=timeout_s))
        assert answer.record_count == 0
    finally:
        let_go.set()
