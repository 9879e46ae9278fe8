"""Interceptors around calls of each kind, of several contracts on one port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import pytest

from penstock.v1 import (
    indexer_pb2,
    indexer_pb2_grpc,
    reader_pb2,
    reader_pb2_grpc,
    staged_commits_pb2,
    writer_pb2,
    writer_pb2_grpc,
)
from services.limits.meter import Meter
from services.limits.metered_call import MeteredCall
from services.rpc.calls import InterceptedCall, Interceptor, Proceed
from services.rpc.server import Contract, RpcServer
from services.rpc.servicer import Context, raw
from services.testing import BackgroundLoop
from storage.accounts.limits import Limits
from storage.errors import StoreBusy, StoreError, TopicNotFound

NAMES = ("penstock.v1.Writer", "penstock.v1.Reader", "penstock.v1.Indexer")
FILES = (writer_pb2, reader_pb2, indexer_pb2)


class Servicer:
    """Answers one method of each kind with as many bytes or messages as it was sent."""

    def __getattr__(self, _name: str) -> Any:
        async def refuse(*_: Any) -> None:
            raise TopicNotFound("t")

        return refuse

    async def list_topics(self, _request: Any, _context: Context) -> Any:
        return writer_pb2.ListTopicsResponse()

    @raw
    async def stage_records(self, context: Context) -> Any:
        taken: list[bytes] = []
        await context.read_each(taken.append)
        return staged_commits_pb2.StageRecordsResponse(record_count=len(taken))

    async def pull_stream(self, _request: Any, context: Context) -> None:
        await context.write(reader_pb2.PullResponse(next_offset=7).SerializeToString())

    @raw
    async def produce_stream(self, context: Context) -> None:
        await context.read_each(lambda _: context.write(b""))


@pytest.fixture
def serve(background: BackgroundLoop, grpc_settings: Any) -> Iterator[Callable[..., grpc.Channel]]:
    servers, channels = [], []

    def begin(*interceptors: Interceptor) -> grpc.Channel:
        async def start() -> tuple[RpcServer, str]:
            contracts = [
                Contract(file.DESCRIPTOR.services_by_name[name.rpartition(".")[2]], Servicer())
                for file, name in zip(FILES, NAMES, strict=True)
            ]
            server = RpcServer(contracts, grpc_settings, asyncio.Event(), interceptors=interceptors)
            return server, await server.start("127.0.0.1:0")

        server, address = background.run(start())
        servers.append(server)
        channels.append(grpc.insecure_channel(address))
        return channels[-1]

    yield begin
    for channel in channels:
        channel.close()
    for server in servers:
        background.run(server.drain())


def call_each_kind(channel: grpc.Channel) -> list[Any]:
    writer, reader = writer_pb2_grpc.WriterStub(channel), reader_pb2_grpc.ReaderStub(channel)
    stage = staged_commits_pb2.StageRecordsRequest()
    batch = writer_pb2.ProduceBatchRequest()
    return [
        writer.ListTopics(writer_pb2.ListTopicsRequest(), timeout=20),
        writer.StageRecords(iter([stage] * 3), timeout=20).record_count,
        [
            each.next_offset
            for each in reader.PullStream(reader_pb2.PullStreamRequest(), timeout=20)
        ],
        len(list(writer.ProduceStream(iter([batch] * 2), timeout=20))),
    ]


ANSWERS = [writer_pb2.ListTopicsResponse(), 3, [7], 2]
KINDS = ["ListTopics", "StageRecords", "PullStream", "ProduceStream"]


def refusal_of(channel: grpc.Channel) -> grpc.RpcError:
    """The indexer's only method, which refuses."""
    with pytest.raises(grpc.RpcError) as refused:
        indexer_pb2_grpc.IndexerStub(channel).WaitIndexed(
            indexer_pb2.WaitIndexedRequest(), timeout=20
        )
    return refused.value


def test_interceptors_are_around_every_call_the_first_outermost(
    serve: Callable[..., grpc.Channel],
) -> None:
    seen: list[Any] = []

    def named(name: str) -> Interceptor:
        async def around(call: InterceptedCall, proceed: Proceed) -> Any:
            seen.append((name, call.method.service, call.method.name))
            try:
                return await proceed(call)
            except StoreError as error:
                seen.append((name, type(error)))
                raise

        return around

    channel = serve(named("outer"), named("inner"))
    assert call_each_kind(channel) == ANSWERS
    services = ["penstock.v1.Writer"] * 4
    services[2] = "penstock.v1.Reader"
    assert seen == [
        (name, service, kind)
        for service, kind in zip(services, KINDS, strict=True)
        for name in ("outer", "inner")
    ]
    seen.clear()
    refusal_of(channel)
    assert seen[2:] == [("inner", TopicNotFound), ("outer", TopicNotFound)]


def test_streams_go_through_the_context_that_an_interceptor_gives(
    serve: Callable[..., grpc.Channel],
) -> None:
    taken: dict[str, list[int]] = {}

    class Counting(Meter):
        def __init__(self, method: str) -> None:
            super().__init__(method, Limits())
            self._sizes = taken[method] = []

        def take_frame(self, frame_bytes: int) -> None:
            self._sizes.append(frame_bytes)

        def take_answer(self, answer_bytes: int) -> None:
            self._sizes.append(answer_bytes)

    async def around(call: InterceptedCall, proceed: Proceed) -> Any:
        if not call.method.is_stream:
            return await proceed(call)
        call.context = MeteredCall(call.context, Counting(call.method.name))
        return await proceed(call)

    assert call_each_kind(serve(around)) == ANSWERS
    assert taken == {"StageRecords": [0] * 3, "PullStream": [2], "ProduceStream": [0] * 4}


def test_what_an_interceptor_raises_is_a_status_and_the_call_is_not_made(
    serve: Callable[..., grpc.Channel],
) -> None:
    def only(methods: Sequence[str]) -> Interceptor:
        async def around(call: InterceptedCall, proceed: Proceed) -> Any:
            metadata = dict(call.context.invocation_metadata() or ())
            if call.method.name not in methods and "token" not in metadata:
                raise StoreBusy("show a token", retry_delay_ms=5)
            return await proceed(call)

        return around

    assert refusal_of(serve(only([]))).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal_of(serve(only(["WaitIndexed"]))).code() is grpc.StatusCode.NOT_FOUND
    stub = writer_pb2_grpc.WriterStub(serve(only([])))
    with pytest.raises(grpc.RpcError, match="show a token"):
        list(stub.ProduceStream(iter([writer_pb2.ProduceBatchRequest()]), timeout=20))
    answered = stub.ListTopics(
        writer_pb2.ListTopicsRequest(), timeout=20, metadata=(("token", "1"),)
    )
    assert answered == ANSWERS[0]
