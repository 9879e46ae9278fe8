"""A caller that goes in the middle of a call is not an error."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
import structlog
from real_processes import until

from penstock.v1 import reader_pb2, writer_pb2
from services.rpc.server import Contract, RpcServer
from services.rpc.servicer import CallEnded, raw
from services.testing import BackgroundLoop
from storage.errors import StoreBusy

METHODS = ["Writer/ListTopics", "Writer/ProduceStream", "Writer/StageRecords"]
METHODS += ["Reader/PullStream", "Reader/Pull", "Indexer/WaitIndexed"]


class _Failing:
    """A servicer whose methods fail like a write of a call that has ended."""

    def __init__(self) -> None:
        self.entered, self.failed = threading.Event(), threading.Event()
        self.at_cancellation = False
        self.error: Exception = CallEnded()

    def __getattr__(self, _name: str) -> Any:
        async def fail(*_: Any) -> None:
            self.entered.set()
            if self.at_cancellation:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
            self.failed.set()
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


def events_of(seen: list[Any], caplog: pytest.LogCaptureFixture) -> list[str]:
    loud = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    return loud + [event["event"] for event in seen if event["log_level"] != "debug"]


def test_a_write_to_a_caller_who_has_gone_ends_the_call_and_is_not_logged(
    call: Callable[[], Any], failing: _Failing, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as seen:
        assert call().code() is grpc.StatusCode.CANCELLED
        assert failing.entered.is_set()
        time.sleep(0.2)  # asyncio has its say last
        assert events_of(seen, caplog) == []


@pytest.mark.parametrize("method", ["Writer/ListTopics", "Writer/ProduceStream"], indirect=True)
def test_a_refusal_whose_caller_is_gone_is_not_an_error(
    call: Callable[[], Any], failing: _Failing, caplog: pytest.LogCaptureFixture
) -> None:
    failing.error, failing.at_cancellation = StoreBusy("later", retry_delay_ms=1), True
    with structlog.testing.capture_logs() as seen:
        under_way = call()
        assert failing.entered.wait(20)
        under_way.cancel()
        until(failing.failed.is_set)
        time.sleep(0.2)
        assert [event for event in seen if event["log_level"] == "error"] == []
    assert events_of([], caplog) == []
