"""A caller that goes in the middle of a call is not an error; what is one is still logged."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from background_loop import BackgroundLoop
from real_processes import until
from three_services import OPTIONS, three_services

from penstock.v1 import common_pb2, reader_pb2, reader_pb2_grpc, writer_pb2
from services import logs
from services.rpc import calls
from services.rpc.calls import CallHandlers
from services.rpc.server import Contract, RpcServer
from services.rpc.servicer import raw
from storage.errors import StoreBusy

COUNT = 60  # requests of a megabyte
METHODS = ["Writer/ListTopics", "Writer/ProduceStream", "Writer/StageRecords"]
METHODS += ["Reader/PullStream", "Reader/Pull", "Indexer/WaitIndexed"]


class _Failing:
    """A servicer whose methods fail like a write of a call that has ended."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.error: Exception = grpc.aio.InternalError("the write failed")

    def __getattr__(self, _name: str) -> Any:
        async def fail(*_: Any) -> None:
            self.entered.set()
            raise self.error

        return raw(fail)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def failing() -> _Failing:
    return _Failing()


@pytest.fixture
def call(
    background: BackgroundLoop, grpc_settings: Any, method: str, failing: _Failing
) -> Iterator[Callable[[], Any]]:
    """Begin a call of the method; the server does not wait long for its cancellation."""
    from penstock.v1 import indexer_pb2

    name = method.partition("/")[0]
    file = {"Writer": writer_pb2, "Reader": reader_pb2, "Indexer": indexer_pb2}[name]
    service = file.DESCRIPTOR.services_by_name[name]
    described = service.methods_by_name[method.partition("/")[2]]
    kind = "_".join(
        "stream" if streams else "unary"
        for streams in (described.client_streaming, described.server_streaming)
    )
    draining = background.call(asyncio.Event)

    async def start() -> tuple[RpcServer, str]:
        rpc_server = RpcServer([Contract(service, failing)], grpc_settings, draining)
        return rpc_server, await rpc_server.start("127.0.0.1:0")

    rpc_server, address = background.run(start())
    with grpc.insecure_channel(address) as channel:
        multi = getattr(channel, kind)(f"/{service.full_name}/{described.name}")
        sent = iter(threading.Event().wait, True) if described.client_streaming else b""
        begin = multi if described.server_streaming else multi.future
        yield lambda: begin(sent, timeout=20)
    background.run(rpc_server.drain())


class _Refusals:
    """How many calls are being refused, or wait to learn that their caller has gone."""

    def __init__(self) -> None:
        self.begun = self.ended = 0


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> _Refusals:
    """Count them, and let them wait: a busy machine needs longer to hear of a caller's end."""
    refuse, refusals = CallHandlers._refuse, _Refusals()

    async def counted(self: CallHandlers, *arguments: Any) -> None:
        refusals.begun += 1
        try:
            await refuse(self, *arguments)
        finally:
            refusals.ended += 1

    monkeypatch.setattr(CallHandlers, "_refuse", counted)
    monkeypatch.setattr(calls, "CANCEL_SECONDS", 60.0)
    return refusals


def events_of(seen: list[Any], caplog: pytest.LogCaptureFixture) -> list[str]:
    loud = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    return loud + [event["event"] for event in seen if event["log_level"] != "debug"]


def test_a_write_that_fails_because_the_caller_went_is_not_logged(
    call: Callable[[], Any], refusals: _Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as seen:
        under_way = call()
        until(lambda: refusals.begun == 1)
        under_way.cancel()
        until(lambda: refusals.ended == 1)
        time.sleep(0.2)  # gRPC has its say last
        assert events_of(seen, caplog) == []


def test_a_write_that_fails_for_a_caller_who_is_there_is_an_error(
    call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CANCEL_SECONDS", 0.05)
    with structlog.testing.capture_logs() as seen:
        under_way = call()
        assert under_way.code() is grpc.StatusCode.INTERNAL
    (event,) = [event for event in seen if event["event"] == "call failed"]
    assert isinstance(event["exc_info"], grpc.aio.InternalError)


@pytest.mark.parametrize("method", ["Writer/ListTopics"], indirect=True)
def test_a_refusal_whose_caller_is_gone_is_not_logged(
    call: Callable[[], Any], failing: _Failing, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC would log it, as it does for whatever a method raises."""

    class Gone:
        def invocation_metadata(self) -> list[Any]:
            return []

        def peer(self) -> str:
            return "nobody"

        async def abort(self, *_: Any, **__: Any) -> None:
            raise grpc.aio.InternalError("nobody there")

    refuse = CallHandlers._refuse
    failing.error = StoreBusy("later", retry_delay_ms=1)

    async def refuse_in_vain(self: RpcServer, name: str, _: Any, error: BaseException) -> Any:
        await refuse(self, name, Gone(), error)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(CallHandlers, "_refuse", refuse_in_vain)
        under_way = call()
        assert failing.entered.wait(20)
        time.sleep(0.3)
        under_way.cancel()
    assert events_of([], caplog) == []


def test_streams_that_are_cancelled_while_they_are_written_leave_no_error(
    tmp_path: Path, refusals: _Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    with three_services(tmp_path / "store") as services:
        create = writer_pb2.CreateTopicRequest(name="t", queue_count=1)
        services.writer.CreateTopic(create, timeout=20)
        message = common_pb2.Message(topic="t", body=b"x" * 100_000, queue_id=0)
        for _ in range(COUNT):
            put(services, writer_pb2.ProduceRequest(messages=[message] * 10))
        request = reader_pb2.PullStreamRequest(topic="t", max_bytes=1 << 20)
        address = services.processes["reader"].address
        with structlog.testing.capture_logs() as seen:
            for number in range(40):
                with grpc.insecure_channel(address, OPTIONS) as channel:
                    answers = reader_pb2_grpc.ReaderStub(channel).PullStream(request, timeout=20)
                    for _ in range(1 + number % 3):
                        next(answers)
            time.sleep(1)
            until(lambda: refusals.ended == refusals.begun)
            assert [event for event in seen if event["log_level"] == "error"] == []
    assert events_of([], caplog) == []


def put(services: Any, request: Any) -> None:
    while True:
        try:
            services.writer.Produce(request, timeout=30)
            return
        except grpc.RpcError as error:  # the next log file is still being made
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_what_grpc_says_of_answers_without_callers_is_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure(service="reader", level="info", log_format="json")
        theirs = logging.getLogger("grpc._cython.cygrpc")
        for error in (grpc.aio.InternalError("gone"), RuntimeError("theirs")):
            theirs.error("raised in core", exc_info=error)
        (line,) = capsys.readouterr().err.splitlines()
        assert "theirs" in line
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
