"""All services with mutual TLS: clients of both kinds, calls between services, and files of theirs that change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest
import structlog
from certificates import Certificates
from free_ports import free_address
from messaging_bed import CLIENT, message, receive_request
from service_settings import (
    gateway_settings,
    indexer_settings,
    reader_settings,
    writer_settings,
)
from tls_port import TlsPort

from penstock import TLS, AsyncClient, Client
from penstock import tls as client_tls
from services import upstream
from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.indexer.__main__ import serve as serve_indexer
from services.reader.__main__ import serve as serve_reader
from services.testing import BackgroundLoop, BackgroundService
from services.upstream import ServiceAddress, Upstream
from services.writer.__main__ import serve as serve_writer

LIST_TOPICS = "/penstock.v1.Writer/ListTopics"


class Services:
    """Writer, reader, indexer and a gateway of its own, that show and check certificates."""

    def __init__(self, store: Path, certificates: Certificates, stack: ExitStack) -> None:
        tls = certificates.mutual
        addresses = {name: free_address() for name in ("writer", "reader", "indexer")}
        self.addresses = addresses
        writer = writer_settings(store, listen=addresses["writer"], **tls)
        reader = reader_settings(
            store, listen=addresses["reader"], writer_address=addresses["writer"], **tls
        )
        indexer = indexer_settings(store, listen=addresses["indexer"], **tls)
        calls = {f"{name}_address": addresses[name] for name in ("writer", "reader")}
        for serve, settings in (
            (serve_writer, writer),
            (serve_reader, reader),
            (serve_indexer, indexer),
        ):
            stack.enter_context(BackgroundService(serve, settings))
        own = certificates.settings
        gateway = BackgroundService(serve_gateway, gateway_settings(**own, **calls))
        self.gateway = stack.enter_context(gateway).address


@pytest.fixture(name="services", scope="module")
def _services(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Services]:
    with ExitStack() as stack:
        yield Services(tmp_path_factory.mktemp("tls") / "store", certificates, stack)


def test_a_gateway_elsewhere_calls_writer_and_reader(
    services: Services, certificates: Certificates
) -> None:
    with Client(**services.addresses, tls=certificates.alice) as client:
        client.create_topic("mail", queues=1)
    topic, group = v2.Resource(name="mail"), v2.Resource(name="readers-of-mail")
    with certificates.channel(services.gateway) as channel:
        stub = service_pb2_grpc.MessagingServiceStub(channel)
        request = service_pb2.SendMessageRequest(messages=[message(topic, b"one")])
        assert stub.SendMessage(request, metadata=CLIENT, timeout=20).status.code == v2.OK
        answers = stub.ReceiveMessage(receive_request(topic, group), metadata=CLIENT, timeout=20)
        assert [each.message.body for each in answers if each.HasField("message")] == [b"one"]


async def test_a_service_shows_the_certificate_that_its_files_hold_by_now(
    background: BackgroundLoop, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a restart, and no call fails."""
    monkeypatch.setattr(upstream, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(client_tls, "LOOK_SECONDS", 0.0)
    own = certificates.issue("first")
    with TlsPort(background, certificates.mutual) as port:
        writer = Upstream(
            ServiceAddress(port.address, TLS(ca=certificates.ca, cert=own.cert, key=own.key))
        )
        await writer.call(LIST_TOPICS, b"")
        other = certificates.issue("second")
        other.key.replace(own.key)
        other.cert.replace(own.cert)
        async with asyncio.timeout(10):
            while port.servicer.callers[-1] != "second":
                await writer.call(LIST_TOPICS, b"")
                await asyncio.sleep(0.01)
        await writer.close()
    assert port.servicer.callers[0] == "first"


async def test_clients_show_the_certificate_that_their_files_hold_by_now(
    background: BackgroundLoop, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that runs for long outlasts the certificates that it began with; bad files change nothing."""
    monkeypatch.setattr(client_tls, "LOOK_SECONDS", 0.0)
    with TlsPort(background, certificates.mutual) as port:
        own = certificates.issue("old")
        tls = TLS(ca=certificates.ca, cert=own.cert, key=own.key)
        with Client(writer=port.address, tls=tls) as client:
            async with AsyncClient(writer=port.address, tls=tls) as aclient:

                async def callers() -> list[str]:
                    await asyncio.to_thread(client.topics)
                    await aclient.topics()
                    return port.servicer.callers[-2:]

                assert await callers() == ["old", "old"]
                own.key.write_text("no key")
                for _ in range(3):
                    assert await callers() == ["old", "old"]
                new = certificates.issue("new")
                new.key.replace(own.key)
                new.cert.replace(own.cert)
                async with asyncio.timeout(10):
                    while await callers() != ["new", "new"]:
                        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("serves", "calls", "problem"),
    [
        ("mutual", None, "if the service serves TLS"),
        ("mutual", "one_sided", "if the service asks for the client's certificate"),
        ("plaintext", "one_sided", "the service serves plaintext"),
        ("mutual", "alice", ""),
    ],
)
async def test_a_service_says_why_it_cannot_call_another_one(
    serves: str,
    calls: str | None,
    problem: str,
    background: BackgroundLoop,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its calls wait for the other one, which may be about to start: without that nobody would know."""
    monkeypatch.setattr(upstream, "LOOK_SECONDS", 0.05)
    settings = certificates.mutual if serves == "mutual" else {}
    with TlsPort(background, settings) as port, structlog.testing.capture_logs() as events:
        identity = getattr(certificates, calls) if calls else None
        writer = Upstream(ServiceAddress(port.address, identity))
        with suppress(grpc.aio.AioRpcError):
            await writer.call(LIST_TOPICS, b"", timeout_s=0.5)
        await asyncio.sleep(0.2)
        await writer.close()
    problems = [
        event["problem"] for event in events if event["event"] == "a service cannot be called"
    ]
    assert [problem in each for each in problems] == ([True] if problem else [])
