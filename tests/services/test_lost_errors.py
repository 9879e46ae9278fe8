"""What fails when nobody waits for it any more writes no traceback of asyncio's."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2
from service_settings import gateway_settings

from penstock.v1 import leases_pb2, retention_pb2
from services.gateway import handle_calls, topics
from services.gateway.__main__ import serve as serve_gateway
from services.gateway.receives import Receiving
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.rpc.in_process import InProcessService
from services.rpc.server import Contract
from services.rpc.servicer import CallEnded
from services.testing import BackgroundService
from services.writer.retention import RetentionServicer
from storage.errors import StoreBusy
from storage.transactions.values import TransactionCheck

NOTHING = cast("Any", None)
CHECK = TransactionCheck("T", ("orders",), 1, (b"half",))


@pytest.fixture(autouse=True)
def _no_lost_errors(caplog: pytest.LogCaptureFixture) -> Any:
    """Asyncio says what was lost when the task that has it is deleted."""
    yield
    gc.collect()
    logged = caplog.get_records("call") + caplog.get_records("teardown")
    assert [each.getMessage() for each in logged if each.name == "asyncio"] == []


async def ended(task: asyncio.Future[Any]) -> None:
    """Wait until a task has ended, and all that it has left."""
    await asyncio.wait({task})
    await others_ended()
    gc.collect()


async def others_ended() -> None:
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


async def turns_until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0)


def test_a_topic_whose_caller_gave_up_before_the_writer_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "_ANSWER_SECONDS", 0.6)
    asked, failed = threading.Event(), threading.Event()
    ask = topics.TopicCache._ask

    async def noted(self: topics.TopicCache, name: str) -> topics.KnownTopic:
        asked.set()
        try:
            return await ask(self, name)
        finally:
            failed.set()

    monkeypatch.setattr(topics.TopicCache, "_ask", noted)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        writer = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = gateway_settings(writer_address=writer, reader_address=writer)
        with (
            BackgroundService(serve_gateway, settings) as gateway,
            grpc.insecure_channel(gateway.address) as channel,
        ):
            stub: Any = service_pb2_grpc.MessagingServiceStub(channel)
            request = service_pb2.QueryRouteRequest(topic=v2.Resource(name="orders"))
            call = stub.QueryRoute.future(request, timeout=20)
            assert asked.wait(20)
            call.cancel()
            assert failed.wait(20)


class _Failing:
    """A contract's method that answers once and then fails."""

    def __init__(self) -> None:
        self.fails = asyncio.Event()

    async def watch(self, _request: Any, context: Any) -> None:
        await context.write(b"one")
        await self.fails.wait()
        raise StoreBusy("later", retry_delay_ms=1)

    async def check(self, _request: Any, _context: Any) -> None: ...
    async def list(self, _request: Any, _context: Any) -> None: ...


async def test_a_stream_of_the_same_process_that_fails_while_its_reader_leaves() -> None:
    failing = _Failing()
    service = InProcessService(
        [Contract(health_pb2.DESCRIPTOR.services_by_name["Health"], failing)]
    )
    answers = service.answers("/grpc.health.v1.Health/Watch", health_pb2.HealthCheckRequest())
    assert await anext(answers) == b"one"
    failing.fails.set()
    await others_ended()
    await cast("Any", answers).aclose()


async def test_a_deletion_whose_caller_went_before_it_was_refused() -> None:
    began, may_end = threading.Event(), threading.Event()

    class Retention:
        def delete_expired(self, _older_than_ms: int | None = None) -> bool:
            began.set()
            may_end.wait(20)
            raise StoreBusy("later", retry_delay_ms=1)

    servicer = RetentionServicer(cast("Any", Retention()))
    request = retention_pb2.DeleteExpiredRequest()
    deleting = asyncio.ensure_future(servicer.delete_expired(request, NOTHING))
    await turns_until(began.is_set)
    deleting.cancel()
    may_end.set()
    await ended(deleting)
    del servicer


async def test_messages_that_cannot_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many calls wait for the reader already."""
    monkeypatch.setattr(handle_calls, "KEYS_MAX", 0)

    class Gone:
        def invocation_metadata(self) -> tuple[()]:
            return ()

        def time_remaining(self) -> float:
            return 10.0

        async def write_all(self, _answers: Any) -> None:
            raise CallEnded

    class Reader:
        async def call(self, *_: Any, **__: Any) -> bytes:
            return leases_pb2.ReceiveResponse(
                record_count=1, receipt_handles=b"a" * 40
            ).SerializeToString()

        def answers(self, *_: Any) -> AsyncIterator[bytes]:
            raise NotImplementedError

    class Sessions:
        def owner_of(self, client_id: str) -> str:
            return client_id

    reader = cast("Any", Reader())
    receiving = Receiving(reader, reader, cast("Any", Sessions()), push_lease_ms=1)
    request = service_pb2.ReceiveMessageRequest(
        group=v2.Resource(name="g"),
        message_queue=v2.MessageQueue(topic=v2.Resource(name="t")),
        auto_renew=False,
    )
    request.invisible_duration.FromSeconds(20)
    call = asyncio.ensure_future(receiving.receive(request, cast("Any", Gone())))
    await ended(call)
    assert isinstance(call.exception(), CallEnded)
