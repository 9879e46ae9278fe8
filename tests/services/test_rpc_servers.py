"""Each service on each server that takes calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from messaging_bed import CLIENT, message
from service_settings import indexer_settings, reader_settings, writer_settings

from penstock import Client, RecordBatch
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.indexer.__main__ import serve as serve_indexer
from services.reader.__main__ import serve as serve_reader
from services.rpc.aio_server import AioServer
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer


@pytest.fixture(params=["core", "aio"])
def served(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Client, str]]:
    """Give a client of writer, reader and indexer, and the gateway's address."""
    starts = []
    start = AioServer.start

    async def counted(server: AioServer) -> None:
        starts.append(server)
        await start(server)

    monkeypatch.setattr(AioServer, "start", counted)
    common: dict[str, Any] = {"rpc_server": request.param}
    settings = writer_settings(tmp_path / "store", **common)
    with BackgroundService(serve_writer, settings) as writer:
        common["writer_address"] = writer.address
        settings = reader_settings(settings.store, gateway_listen="127.0.0.1:0", **common)
        with (
            BackgroundService(serve_reader, settings) as reader,
            BackgroundService(serve_indexer, indexer_settings(settings.store, **common)) as indexer,
            Client(writer=writer.address, reader=reader.address, indexer=indexer.address) as client,
        ):
            client.create_topic("orders", queues=1)
            yield client, reader.gateway_address
    assert len(starts) == {"core": 0, "aio": 4}[request.param]


def test_it_serves_its_calls(served: tuple[Client, str]) -> None:
    client, gateway = served
    client.produce("orders", b"0", keys=["a"])
    batch = RecordBatch("orders")
    batch.add(b"1", queue_id=0)
    client.produce_batch(batch)
    with client.producer() as producer:
        sent = [producer.send("orders", b"%d" % number, keys=["b"]) for number in range(2, 100)]
    last = sent[-1].result(20)
    with grpc.insecure_channel(gateway) as channel:
        stub = service_pb2_grpc.MessagingServiceStub(channel)
        topic = v2.Resource(name="orders")
        request = service_pb2.SendMessageRequest(messages=[message(topic)])
        assert stub.SendMessage(request, metadata=CLIENT, timeout=20).status.code == v2.OK
        settings = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[topic]))
        command = service_pb2.TelemetryCommand(settings=settings)
        [answer] = stub.Telemetry(iter([command]), metadata=CLIENT, timeout=20)
        assert answer.settings.publishing.topics == [topic]
    expected = [*(b"%d" % number for number in range(100)), b"x"]
    consumed = itertools.islice(client.consume("orders", group="g"), len(expected))
    assert [record.body for record in consumed] == expected
    received = client.receive("orders", group="leased", max_messages=200, wait_ms=5_000)
    assert len(received.records) == len(expected)
    assert client.acknowledge(received) == []
    client.wait_indexed(last.commit_offset, timeout_s=20)
    assert len(list(client.query_by_key("orders", "b"))) == 98
