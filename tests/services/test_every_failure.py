"""Whatever fails below a method: a documented status, one line in the log, nothing of Python's in either.

The methods come from the descriptors, so a new one is here as soon as it is in its contract; it needs
a request in ``REQUESTS``.
"""

from __future__ import annotations

import errno
import gc
import inspect
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import pytest
import structlog
from engine_store import record
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from real_processes import until
from three_services import ThreeServices, three_services

from penstock.v1 import (
    common_pb2,
    dead_letters_pb2,
    groups_pb2,
    indexer_pb2,
    leases_pb2,
    reader_pb2,
    staged_commits_pb2,
    traffic_pb2,
    writer_pb2,
)
from storage.files.filesystem import File, FileSystem
from storage.format.receipt_handle import HANDLE_SIZE
from storage.leases.leases import Leases
from storage.reader import StoreReader
from storage.staged.staged_commits import StagedCommits
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.groups import GroupTable
from storage.writer import StoreWriter

CODES = grpc.StatusCode
PROCESS_OF = {
    "Writer": "writer", "Reader": "reader", "Leases": "reader", "Groups": "reader",
    "Traffic": "reader", "Indexer": "indexer",
}  # fmt: skip
SERVICES = [
    writer_pb2.DESCRIPTOR.services_by_name["Writer"],
    dead_letters_pb2.DESCRIPTOR.services_by_name["DeadLetters"],
    reader_pb2.DESCRIPTOR.services_by_name["Reader"],
    leases_pb2.DESCRIPTOR.services_by_name["Leases"],
    groups_pb2.DESCRIPTOR.services_by_name["Groups"],
    traffic_pb2.DESCRIPTOR.services_by_name["Traffic"],
    indexer_pb2.DESCRIPTOR.services_by_name["Indexer"],
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
]
METHODS = [method for service in SERVICES for method in service.methods]
QUEUE = {"topic": "t", "queue_id": 0}
RECORD = record()
OF_GROUP = {"group": "g", "topic": "t"}
HANDLES = {**OF_GROUP, "receipt_handles": b"A" * HANDLE_SIZE}
STAGE = {"app_id": "app", "version": 7, "attempt": "a"}
REQUESTS: dict[str, list[Any]] = {
    "Produce": [writer_pb2.ProduceRequest(messages=[common_pb2.Message(topic="t", body=b"x")])],
    "ProduceBatch": [writer_pb2.ProduceBatchRequest(records=RECORD)],
    "ProduceStream": [writer_pb2.ProduceBatchRequest(records=RECORD)],
    "StageRecords": [
        staged_commits_pb2.StageRecordsRequest(stage=staged_commits_pb2.StageHeader(**STAGE))
    ],
    "CommitStaged": [
        staged_commits_pb2.CommitStagedRequest(app_id="app", version=7, attempts=["a"])
    ],
    "AbortStaged": [staged_commits_pb2.AbortStagedRequest(app_id="app", version=7, all=True)],
    "ListStagedCommits": [staged_commits_pb2.ListStagedCommitsRequest()],
    "CreateTopic": [writer_pb2.CreateTopicRequest(name="new", queue_count=1)],
    "CreateTopics": [
        writer_pb2.CreateTopicsRequest(
            topics=[writer_pb2.CreateTopicRequest(name="many", queue_count=1)]
        )
    ],
    "UpdateTopic": [writer_pb2.UpdateTopicRequest(name="t", queue_count=2)],
    "DeleteTopic": [writer_pb2.DeleteTopicRequest(name="gone")],
    "DescribeTopic": [writer_pb2.DescribeTopicRequest(name="t")],
    "ListTopics": [writer_pb2.ListTopicsRequest()],
    "GetWriterStatus": [writer_pb2.GetWriterStatusRequest()],
    "AppendDeadLetters": [
        dead_letters_pb2.AppendDeadLettersRequest(
            group="g", commit_offsets=[0], reconsume_times=[0]
        )
    ],
    "Pull": [reader_pb2.PullRequest(**QUEUE)],
    "PullStream": [reader_pb2.PullStreamRequest(**QUEUE)],
    "QueryByKey": [reader_pb2.QueryByKeyRequest(topic="t", key="k")],
    "GetMessage": [reader_pb2.GetMessageRequest(commit_offset=0)],
    "ListQueues": [reader_pb2.ListQueuesRequest()],
    "QueryOffset": [reader_pb2.QueryOffsetRequest(**QUEUE, position=reader_pb2.LATEST)],
    "CommitOffset": [reader_pb2.CommitOffsetRequest(group="g", **QUEUE, queue_offset=1)],
    "FetchOffsets": [reader_pb2.FetchOffsetsRequest(group="g")],
    "ListGroups": [reader_pb2.ListGroupsRequest()],
    "Receive": [leases_pb2.ReceiveRequest(**OF_GROUP)],
    "Acknowledge": [leases_pb2.AcknowledgeRequest(**HANDLES)],
    "AcknowledgeStream": [leases_pb2.AcknowledgeRequest(**HANDLES)],
    "ChangeLeases": [leases_pb2.ChangeLeasesRequest(**HANDLES, duration_ms=1)],
    "DeadLetter": [leases_pb2.DeadLetterRequest(**HANDLES)],
    "RenewLeases": [leases_pb2.RenewLeasesRequest(client_ids=["c"])],
    "ReleaseLeases": [leases_pb2.ReleaseLeasesRequest(client_ids=["c"])],
    "GetLeaseStatus": [leases_pb2.GetLeaseStatusRequest()],
    "TrackMessage": [leases_pb2.TrackMessageRequest(**QUEUE)],
    "GetTraffic": [traffic_pb2.GetTrafficRequest()],
    "CreateGroup": [groups_pb2.CreateGroupRequest(settings=groups_pb2.GroupSettings(name="new"))],
    "UpdateGroup": [
        groups_pb2.UpdateGroupRequest(
            settings=groups_pb2.GroupSettings(name="g", retry_max_times=3)
        )
    ],
    "DescribeGroup": [groups_pb2.DescribeGroupRequest(**OF_GROUP)],
    "DeleteGroup": [groups_pb2.DeleteGroupRequest(group="gone")],
    "ListGroupSettings": [groups_pb2.ListGroupSettingsRequest()],
    "ResetGroup": [groups_pb2.ResetGroupRequest(**OF_GROUP, begin=groups_pb2.FROM_EARLIEST)],
    "GetReaderStatus": [reader_pb2.GetReaderStatusRequest()],
    "GetIndexerStatus": [indexer_pb2.GetIndexerStatusRequest()],
    "WaitIndexed": [indexer_pb2.WaitIndexedRequest(commit_offset=0)],
    "Check": [health_pb2.HealthCheckRequest()],
    "List": [health_pb2.HealthListRequest()],
    "Watch": [health_pb2.HealthCheckRequest()],
    "ServerReflectionInfo": [reflection_pb2.ServerReflectionRequest(list_services="")],
}
ANSWER_IN_FRAMES = {  # what is refused is one frame, and the stream goes on
    "ProduceStream": writer_pb2.ProduceStreamResponse,
    "AcknowledgeStream": leases_pb2.AcknowledgeStreamResponse,
}
TOUCH_NO_FILE = {
    "GetWriterStatus", "ListStagedCommits", "GetReaderStatus", "GetIndexerStatus", "WaitIndexed",
    "Check", "List", "Watch", "ServerReflectionInfo",
}  # fmt: skip
NOT_FAILING = {  # what the services do by themselves, whether anybody calls or not
    "status", "failure", "check_place", "close", "is_held", "add_ack_listener", "resume", "expire",
    "refresh", "add_listener", "nearest_ms", "sync", "save_offsets", "compact", "find_kept",
}  # fmt: skip


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("failures") / "store") as running:
        prepare(running)
        gc.collect()
        gc.freeze()  # what is there by now; each test looks for what it left itself
        yield running
        gc.unfreeze()


def prepare(running: ThreeServices) -> None:
    for name in ("t", "gone"):
        topic = writer_pb2.CreateTopicRequest(name=name, queue_count=1)
        running.writer.CreateTopic(topic, timeout=20)
    message = common_pb2.Message(topic="t", body=b"x", keys=["k"], queue_id=0)
    running.writer.Produce(writer_pb2.ProduceRequest(messages=[message]), timeout=20)
    running.reader.CommitOffset(REQUESTS["CommitOffset"][0], timeout=20)
    for name in ("g", "gone"):
        settings = groups_pb2.GroupSettings(name=name)
        running.groups.CreateGroup(groups_pb2.CreateGroupRequest(settings=settings), timeout=20)
    running.leases.Receive(REQUESTS["Receive"][0], timeout=20)


def serialized(method: MethodDescriptor) -> list[bytes]:
    return [request.SerializeToString() for request in REQUESTS[method.name]]


class Outcome(NamedTuple):
    code: grpc.StatusCode
    message: str
    failed_frames: list[common_pb2.Failure]


def outcome_of(services: ThreeServices, method: MethodDescriptor, requests: list[bytes]) -> Outcome:
    """Make a call with serialized requests; a stream that goes on is ended after an answer."""
    service = method.containing_service
    address = getattr(services.running, PROCESS_OF.get(service.name, "writer"))
    kinds = {True: "stream", False: "unary"}
    kind = f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}"
    failures = []
    with grpc.insecure_channel(address) as channel:
        multi = getattr(channel, kind)(f"/{service.full_name}/{method.name}")
        try:
            answer = multi(iter(requests) if method.client_streaming else requests[0], timeout=20)
            for each in answer if method.server_streaming else ():
                if method.name in ANSWER_IN_FRAMES:
                    response: Any = ANSWER_IN_FRAMES[method.name].FromString(each)
                    found = getattr(response, "outcomes", [response])
                    failures += [one.failure for one in found if one.HasField("failure")]
                if method.name == "Watch":
                    answer.cancel()
                    break
        except grpc.RpcError as error:
            return Outcome(error.code(), error.details() or "", failures)
    return Outcome(CODES.OK, "", failures)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """What was logged since the last look, but for calls that went well: so many lines at least.

    In the end asyncio and gRPC have said nothing.
    """
    with structlog.testing.capture_logs() as events, caplog.at_level(logging.INFO):

        def found() -> list[dict[str, Any]]:
            return [event for event in events if event.get("code") != "OK"]

        def since(count: int = 0) -> list[dict[str, Any]]:
            until(lambda: len(found()) >= count)  # a line may come after its answer
            told = found()
            events.clear()
            return told

        yield since
        gc.collect()  # exceptions that nobody looked at are told of then
        time.sleep(0.05)
        records = caplog.get_records("call")
        foreign = [r for r in records if r.name.startswith(("asyncio", "grpc"))]
        assert not foreign, [record.getMessage() for record in foreign]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    """Make whatever the services call of the engine raise an error from now on."""

    def begin(error: Exception) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise error

        for kind in (
            StoreWriter, StagedCommits, StoreReader, ConsumerOffsets, Leases, GroupTable,
        ):  # fmt: skip
            for name, value in list(vars(kind).items()):
                if inspect.isfunction(value) and not name.startswith("_"):
                    monkeypatch.setattr(kind, name, value if name in NOT_FAILING else fail)

    return begin


@pytest.mark.parametrize(
    ("error", "code", "event"),
    [
        (OSError(errno.EIO, "Input/output error", "f"), CODES.FAILED_PRECONDITION, "failed"),
        (OSError(errno.EMFILE, "Too many open files", "f"), CODES.RESOURCE_EXHAUSTED, "call"),
        (RuntimeError("secret detail"), CODES.INTERNAL, "failed"),
    ],
    ids=["EIO", "EMFILE", "a bug"],
)
def test_an_engine_that_fails_is_a_documented_status_and_one_line(
    services: ThreeServices, failing: Any, lines: Any,
    error: Exception, code: grpc.StatusCode, event: str,
) -> None:  # fmt: skip
    failing(error)
    is_bug = isinstance(error, RuntimeError)
    for method in METHODS:
        name = method.name
        found = outcome_of(services, method, serialized(method))
        if name in TOUCH_NO_FILE:
            assert found.code is CODES.OK, (name, found)
        elif name in ANSWER_IN_FRAMES and not is_bug:
            assert found.code is CODES.OK, (name, found)
            (failure,) = found.failed_frames
            assert failure.code == code.value[0]
            assert bool(failure.retry_delay_ms) == (code is CODES.RESOURCE_EXHAUSTED)
            expected = ["frame refused"] * (event == "failed")
            assert [line["event"] for line in lines(len(expected))] == expected
        else:
            assert found.code is code, (name, found)
            assert "secret" not in found.message
            (line,) = lines(1)
            assert event in line["event"], name
            assert line["method"] == name
            assert ("exc_info" in line) == is_bug


def test_bytes_that_are_no_request_are_an_invalid_argument(
    services: ThreeServices, lines: Any
) -> None:
    for method in METHODS:
        found = outcome_of(services, method, [b"\x0a\xff\xff\xff\xff\xff"])
        assert found.code is CODES.INVALID_ARGUMENT, (method.name, found)
        assert method.name in found.message
        told = [(line["event"], line["code"]) for line in lines(1)]
        assert told == [("call", "INVALID_ARGUMENT")], method.name


def fail_below(monkeypatch: pytest.MonkeyPatch, store: Any, operation: str) -> None:
    """Make one kind of call below a store's directory fail as on a device that breaks."""
    kind: Any = File if hasattr(File, operation) else FileSystem
    original = getattr(kind, operation)

    def fail(self: Any, *arguments: Any, **options: Any) -> Any:
        path = self.path if kind is File else arguments[0]
        if str(store) in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return original(self, *arguments, **options)

    monkeypatch.setattr(kind, operation, fail)


@pytest.mark.parametrize(
    "operation",
    ["open", "create", "list_directory", "exists", "rename", "sync_directory", "make_directory",
     "pread", "pwrite", "map", "sync", "sync_all", "extend"],
)  # fmt: skip
def test_a_device_that_breaks_is_a_documented_status_for_every_method(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, operation: str, lines: Any
) -> None:
    """On the real files: some of these end writing for good, none is a bug of ours."""
    with three_services(tmp_path / "store") as services:
        prepare(services)
        with monkeypatch.context() as patch:
            fail_below(patch, tmp_path / "store", operation)
            for each in METHODS:
                found = outcome_of(services, each, serialized(each))
                assert found.code not in (CODES.INTERNAL, CODES.UNKNOWN), (each.name, found)
                codes = {failure.code for failure in found.failed_frames}
                assert not codes & {CODES.INTERNAL.value[0], CODES.UNKNOWN.value[0]}
        assert not [line for line in lines() if "exc_info" in line]
