"""Callers of streams that do not read are bounded all together, and no other caller suffers for long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from three_services import three_services

from penstock.v1 import common_pb2, reader_pb2, reader_pb2_grpc, writer_pb2
from services.reader import budget

BODY = b"x" * (200 << 10)
COUNT = 100
# A window that stays: one that grows with the connection's speed would take whole streams in.
FIXED_WINDOW = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 64 << 10),
]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "WAIT_SECONDS", 0.3)


def test_stalled_streams_are_bounded_and_gone_with_their_callers(
    tmp_path: Path, impatient: None
) -> None:
    """With room for two answers, streams beyond are refused until the stalled ones are gone."""
    changes = {"stream_bytes_max": 2 << 20, "pull_bytes_max": 1 << 20}
    with (
        three_services(tmp_path / "store", **changes) as services,
        grpc.insecure_channel(services.running.reader, FIXED_WINDOW) as channel,
    ):
        reader = reader_pb2_grpc.ReaderStub(channel)
        create = writer_pb2.CreateTopicRequest(name="t", queue_count=1)
        services.writer.CreateTopic(create, timeout=20)
        for _ in range(COUNT // 10):
            messages = [common_pb2.Message(topic="t", body=BODY, queue_id=0)] * 10
            put(services, writer_pb2.ProduceRequest(messages=messages))

        def stream() -> Any:
            request = reader_pb2.PullStreamRequest(topic="t", max_bytes=1 << 20)
            return reader.PullStream(request, timeout=100)

        stalled, refused = [], None
        while refused is None:
            assert len(stalled) < 8
            answers = stream()
            try:
                next(answers)
                stalled.append(answers)
            except grpc.RpcError as error:
                refused = error
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stalled and "do not read" in refused.details()

        pull = reader_pb2.PullRequest(topic="t", max_messages=1)
        assert services.reader.Pull(pull, timeout=20).record_count == 1  # others go on
        for answers in stalled:
            answers.cancel()
        assert sum(answer.record_count for answer in all_of(stream)) == COUNT


def put(services: Any, request: Any) -> None:
    while True:
        try:
            services.writer.Produce(request, timeout=30)
            return
        except grpc.RpcError as error:  # the next log file is still being made
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def all_of(stream: Any) -> list[Any]:
    """A whole stream; the service hears of the cancelled ones a moment later."""
    while True:
        try:
            return list(stream())
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
