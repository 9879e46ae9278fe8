"""What every service does around its methods: health, reflection, errors, limits, drain."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from fake_writer_store import FakeWriterStore
from grpc_health.v1 import health_pb2, health_pb2_grpc
from real_processes import until
from service_settings import writer_settings

from penstock.v1 import common_pb2, writer_pb2, writer_pb2_grpc
from services.rpc.calls import PARSED_BYTES_MAX
from services.rpc.limits import server_options
from services.rpc.server import WATCHED_PART, Contract, RpcServer
from services.testing import BackgroundLoop
from services.writer.acks import Acks
from services.writer.servicer import WriterServicer
from storage.errors import StoreBusy

STORE = FakeWriterStore()


@pytest.fixture(scope="module")
def grpc_service() -> Any:
    return writer_pb2.DESCRIPTOR.services_by_name["Writer"]


@pytest.fixture(scope="module")
def grpc_settings() -> Any:
    return writer_settings(Path("unused"), message_bytes_max=4 << 20)


@pytest.fixture(scope="module")
def grpc_servicer_factory() -> Callable[[asyncio.Event], Any]:
    return lambda draining: WriterServicer(STORE, Acks(STORE), draining, stream_batches_max=4)


@pytest.fixture(scope="module")
def grpc_stub_cls() -> Any:
    return writer_pb2_grpc.WriterStub


@pytest.fixture(autouse=True)
def healthy_store() -> None:
    STORE.error = None


ONE = writer_pb2.ProduceRequest(messages=[common_pb2.Message(topic="t", body=b"x")])


def test_health_is_reported_for_the_service_and_for_the_whole(
    grpc_channel: grpc.Channel, grpc_server: RpcServer, background: BackgroundLoop
) -> None:
    stub = health_pb2_grpc.HealthStub(grpc_channel)

    def states() -> list[int]:
        names = ("", "penstock.v1.Writer")
        return [stub.Check(health_pb2.HealthCheckRequest(service=n)).status for n in names]

    serving, not_serving = (
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    )
    assert states() == [serving, serving]
    background.call(lambda: grpc_server.set_serving(serving=False))
    assert states() == [not_serving, not_serving]
    background.call(lambda: grpc_server.set_serving(serving=True))
    assert states() == [serving, serving]
    with pytest.raises(grpc.RpcError) as unknown:
        stub.Check(health_pb2.HealthCheckRequest(service="penstock.v1.Reader"))
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_watch_reports_each_change_of_the_health(
    grpc_channel: grpc.Channel, grpc_server: RpcServer, background: BackgroundLoop
) -> None:
    watch = health_pb2_grpc.HealthStub(grpc_channel).Watch(
        health_pb2.HealthCheckRequest(service="penstock.v1.Writer"), timeout=60
    )
    told = [next(watch).status]
    for serving in (False, True):
        background.call(lambda serving=serving: grpc_server.set_serving(serving=serving))
        told.append(next(watch).status)
    watch.cancel()
    states = health_pb2.HealthCheckResponse
    assert told == [states.SERVING, states.NOT_SERVING, states.SERVING]


def test_watches_are_a_part_of_the_calls_and_the_rest_is_for_others(
    grpc_service: Any, grpc_settings: Any, background: BackgroundLoop
) -> None:
    async def start() -> tuple[RpcServer, str]:
        settings = grpc_settings.model_copy(update={"concurrent_calls_max": 2 * WATCHED_PART})
        server = RpcServer([Contract(grpc_service, _Slow())], settings, asyncio.Event())
        return server, await server.start("127.0.0.1:0")

    server, address = background.run(start())
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest(), timeout=60) for _ in range(2)]
        for watch in watches:
            next(watch)
        with pytest.raises(grpc.RpcError) as refused:
            next(stub.Watch(health_pb2.HealthCheckRequest(), timeout=60))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches[0].cancel()
        until(lambda: _is_told(stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)), seconds=20)
        watches[1].cancel()
    background.run(server.drain())


def _is_told(watch: Any) -> bool:
    try:
        next(watch)
    except grpc.RpcError:
        return False
    watch.cancel()
    return True


def test_a_request_that_is_parsed_in_one_go_is_bounded(grpc_channel: grpc.Channel) -> None:
    """Empty elements take two bytes each: more of them would hold the event loop while they are parsed."""
    empty_topic = bytes([writer_pb2.CreateTopicsRequest.TOPICS_FIELD_NUMBER << 3 | 2, 0])
    create = grpc_channel.unary_unary("/penstock.v1.Writer/CreateTopics")
    for size, said in (
        (PARSED_BYTES_MAX, "too many"),
        (PARSED_BYTES_MAX + 2, "the most of this method"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            create(empty_topic * (size // 2), timeout=30)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert said in refused.value.details()


def test_a_callers_request_id_comes_back_with_a_refusal(grpc_stub: Any, refusal: Any) -> None:
    STORE.error = StoreBusy("the pool is full", retry_delay_ms=25)
    refused = refusal(grpc_stub.Produce, ONE, metadata=[("x-request-id", "mine-1")])
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.message == "the pool is full"
    assert refused.trailing["x-request-id"] == "mine-1"
    assert refused.info.metadata["request_id"] == "mine-1"
    assert refused.retry.retry_delay.ToMilliseconds() == 25


def test_without_one_a_request_id_is_made(grpc_stub: Any, refusal: Any) -> None:
    STORE.error = StoreBusy("the pool is full", retry_delay_ms=25)
    first, second = (refusal(grpc_stub.Produce, ONE).trailing["x-request-id"] for _ in range(2))
    assert first and first != second


def test_a_request_above_the_limit_is_refused_unread(grpc_stub: Any, refusal: Any) -> None:
    before = len(STORE.stored)
    body = b"x" * ((4 << 20) + 1)
    request = writer_pb2.ProduceRequest(messages=[common_pb2.Message(topic="t", body=body)])
    refused = refusal(grpc_stub.Produce, request)
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(STORE.stored) == before


def test_ports_of_a_process_share_half_of_the_files_that_it_may_have_open(
    grpc_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_000, 1_000))
    name = "grpc.max_allowed_incoming_connections"
    found = [dict(server_options(grpc_settings, ports))[name] for ports in (1, 2)]
    assert found == [500, 250]


class _Slow:
    """One method that ends when it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = asyncio.Event()

    async def list_topics(self, _request: Any, _context: Any) -> Any:
        self.entered.set()
        await self.let_go.wait()
        return writer_pb2.ListTopicsResponse()

    def __getattr__(self, _name: str) -> Any:
        return self.list_topics


def test_a_drain_lets_calls_end_takes_no_new_ones_and_waits_for_no_watch_of_the_health(
    background: BackgroundLoop, grpc_service: Any, grpc_settings: Any
) -> None:
    async def start() -> tuple[RpcServer, _Slow, str]:
        slow = _Slow()
        settings = grpc_settings.model_copy(update={"drain_grace_seconds": 40.0})
        server = RpcServer([Contract(grpc_service, slow)], settings, asyncio.Event())
        return server, slow, await server.start("127.0.0.1:0")

    server, slow, address = background.run(start())
    with grpc.insecure_channel(address) as channel, grpc.insecure_channel(address) as late:
        under_way = writer_pb2_grpc.WriterStub(channel).ListTopics.future(
            writer_pb2.ListTopicsRequest(), timeout=60
        )
        assert slow.entered.wait(30)
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service="penstock.v1.Writer"), timeout=60
        )
        told = next(watch).status
        ends: list[None] = []
        drained = threading.Thread(target=lambda: ends.append(background.run(server.drain())))
        drained.start()
        code = None
        until = time.monotonic() + 20
        while code is not grpc.StatusCode.UNAVAILABLE:  # those that came before it wait
            assert time.monotonic() < until
            with pytest.raises(grpc.RpcError) as refused:
                writer_pb2_grpc.WriterStub(late).ListTopics(
                    writer_pb2.ListTopicsRequest(), timeout=0.5
                )
            code = refused.value.code()
        background.call(slow.let_go.set)
        assert under_way.result() == writer_pb2.ListTopicsResponse()
        drained.join(40)
        assert ends == [None]
        with pytest.raises(grpc.RpcError) as ended:
            next(watch)
        assert told == health_pb2.HealthCheckResponse.NOT_SERVING
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


def test_logs_are_json_lines_with_the_service_and_the_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from services import logs

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure(service="writer", level="info", log_format="json")
        logging.getLogger("storage.somewhere").warning("disk is slow")
        line = json.loads(capsys.readouterr().err.splitlines()[-1])
        assert (line["event"], line["service"], line["level"]) == (
            "disk is slow",
            "writer",
            "warning",
        )
        assert line["time"].endswith("Z")
        assert list(line)[:4] == ["time", "level", "event", "service"]
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
