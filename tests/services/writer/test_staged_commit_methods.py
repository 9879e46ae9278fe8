"""Staging, committing and aborting over gRPC: answers, statuses, and what a broken stream leaves."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from engine_store import small_config
from files_below import files_below
from google.protobuf.descriptor import ServiceDescriptor
from real_processes import until
from staged_records import staged

from penstock.v1 import staged_commits_pb2 as pb
from penstock.v1 import writer_pb2, writer_pb2_grpc
from services.writer import staged_commits
from services.writer.acks import Acks
from services.writer.servicer import WriterServicer
from storage.errors import DamagedLedger
from storage.files.filesystem import FileSystem
from storage.files.protocol import Buffer
from storage.files.system.os_file import File
from storage.writer import StoreWriter


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("staged") / "store"


@pytest.fixture(scope="module")
def store(directory: Path) -> Iterator[StoreWriter]:
    with StoreWriter.open(directory, small_config()) as store:
        store.create_topic("t", 2)
        yield store


@pytest.fixture(scope="module")
def grpc_service() -> ServiceDescriptor:
    return writer_pb2.DESCRIPTOR.services_by_name["Writer"]


@pytest.fixture(scope="module")
def grpc_servicer_factory(store: StoreWriter) -> Any:
    return lambda draining: WriterServicer(store, Acks(store), draining, stream_batches_max=4)


@pytest.fixture
def writer(grpc_create_channel: Any) -> Iterator[writer_pb2_grpc.WriterStub]:
    with grpc_create_channel() as channel:
        yield writer_pb2_grpc.WriterStub(channel)


def frames(app: str, version: int, attempt: str, *blocks: list[bytes], **options: Any) -> list[Any]:
    header = pb.StageHeader(app_id=app, version=version, attempt=attempt)
    found, first = [pb.StageRecordsRequest(stage=header)], 0
    for bodies in blocks:
        records = staged(app, version, attempt, bodies, first=first, **options)
        found.append(pb.StageRecordsRequest(records=records))
        first += len(bodies)
    return found


def commit(writer: Any, app: str, version: int, *attempts: str) -> pb.CommitStagedResponse:
    return writer.CommitStaged(
        pb.CommitStagedRequest(app_id=app, version=version, attempts=attempts), timeout=20
    )


def test_a_damaged_journal_is_data_loss(
    writer: Any, refusal: Any, store: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = DamagedLedger("the journal is damaged")
    monkeypatch.setattr(store.staged, "_refused", {"": problem, "damaged-1": problem})
    stage = iter(frames("damaged", 1, "a", [b"1"]))
    for call, request in (
        (writer.StageRecords, stage),
        (writer.CommitStaged, pb.CommitStagedRequest(app_id="damaged", version=0)),
        (writer.AbortStaged, pb.AbortStagedRequest(app_id="damaged", version=0, all=True)),
    ):
        refused = refusal(call, request)
        assert (refused.code, refused.info.reason) == (
            grpc.StatusCode.DATA_LOSS,
            "DAMAGED_LEDGER",
        )
        assert "the journal is damaged" in refused.message
    listed = writer.ListStagedCommits(pb.ListStagedCommitsRequest(), timeout=20).applications
    assert [(app.app_id, app.problem) for app in listed if app.problem] == [
        ("damaged-1", "the journal is damaged")
    ]


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (errno.EIO, "FAILED_PRECONDITION", "DEVICE_FAILED"),
        (errno.EMFILE, "RESOURCE_EXHAUSTED", "STORE_BUSY"),
        (errno.ENOMEM, "RESOURCE_EXHAUSTED", "STORE_BUSY"),
    ],
)
def test_a_stage_that_cannot_be_read_now_is_not_damaged_and_the_next_commit_stores_it(
    writer: Any, refusal: Any, monkeypatch: pytest.MonkeyPatch, number: int, code: str, reason: str
) -> None:
    app_id = f"unread {number}"
    writer.StageRecords(iter(frames(app_id, 0, "a", [b"1"])), timeout=20)
    given = FileSystem.open

    def failing(filesystem: FileSystem, path: Path, *, writable: bool) -> File:
        if path.suffix == ".stage":
            raise OSError(number, os.strerror(number), str(path))
        return given(filesystem, path, writable=writable)

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "open", failing)
        request = pb.CommitStagedRequest(app_id=app_id, version=0, attempts=["a"])
        refused = refusal(writer.CommitStaged, request)
    assert (refused.code, refused.info.reason) == (grpc.StatusCode[code], reason)
    assert ".stage" in refused.message
    assert commit(writer, app_id, 0, "a").committed.record_count == 1


@pytest.mark.parametrize(
    ("requests", "code", "field"),
    [
        ([], "INVALID_ARGUMENT", "stage"),
        ([pb.StageRecordsRequest(records=b"x")], "INVALID_ARGUMENT", "stage"),
        (frames("", 0, "a"), "INVALID_ARGUMENT", "app_id"),
        (frames("bad", -1, "a"), "INVALID_ARGUMENT", "version"),
        (frames("bad", 0, "a", [b"x"], topic="unknown"), "NOT_FOUND", None),
        (frames("bad", 0, "a", [b"x"] * 3, queue_count=3), "INVALID_ARGUMENT", "queue_id"),
        ([*frames("bad", 0, "a"), *frames("bad", 0, "b", [b"x"])[1:]], "INVALID_ARGUMENT", "records[0]"),
    ],
)  # fmt: skip
def test_refused_stages_say_why_and_leave_nothing(
    writer: Any, refusal: Any, directory: Path, requests: Any, code: str, field: str | None
) -> None:
    refused = refusal(writer.StageRecords, iter(requests))
    assert refused.code is grpc.StatusCode[code]
    if field:
        assert refused.bad_request.field_violations[0].field == field
    assert not [path for path in files_below(directory, ".stage") if "bad" in str(path)]


class _Context:
    """A call with requests, which was not cancelled when it was asked."""

    def __init__(self, requests: list[Any]) -> None:
        self._requests = requests

    def cancelled(self) -> bool:
        return False

    async def read_each(self, take: Any) -> None:
        for request in self._requests:
            await take(request.SerializeToString())


async def test_a_call_that_is_cancelled_while_a_block_is_written_leaves_the_writer_as_it_was(
    directory: Path, store: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread writes on when its call is gone: its file must not be closed under it."""
    loop, writing = asyncio.get_running_loop(), asyncio.Event()
    written: list[BaseException | None] = []

    def write_slowly(file: File, data: Buffer, position: int) -> None:
        if "unsealed" in str(file.path) and b"slow block" in bytes(data):
            loop.call_soon_threadsafe(writing.set)
            time.sleep(0.2)
            try:
                pwrite(file, data, position)
            except OSError as error:
                written.append(error)
                raise
            written.append(None)
        else:
            pwrite(file, data, position)

    pwrite = File.pwrite
    monkeypatch.setattr(File, "pwrite", write_slowly)

    context: Any = _Context(frames("cut off", 0, "a", [b"slow block"]))
    methods = staged_commits.StagedCommitMethods(store.staged)
    call = asyncio.ensure_future(methods.stage_records(context))
    await writing.wait()
    call.cancel()
    await asyncio.wait({call})
    assert call.cancelled()
    await asyncio.to_thread(until, lambda: bool(written))

    assert (written, store.failure()) == ([None], None)
    assert not [each for each in files_below(directory, ".stage") if "cut" in str(each)]
    attempt = store.staged.stage("cut off", 0, "a")  # its id is free again
    assert attempt is not None
    attempt.discard()
