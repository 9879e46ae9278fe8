"""Services with mutual TLS: a gateway of its own, calls between services, and files that change."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from certificates import Certificates
from messaging_bed import CLIENT, message, receive_request
from service_settings import (
    gateway_settings,
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
from services.reader.__main__ import serve as serve_reader
from services.testing import BackgroundLoop, BackgroundService
from services.upstream import ServiceAddress, Upstream
from services.writer.__main__ import serve as serve_writer

LIST_TOPICS = "/penstock.v1.Writer/ListTopics"


def test_a_gateway_elsewhere_calls_writer_and_reader(
    tmp_path: Path, certificates: Certificates
) -> None:
    """It shows its certificate to both, and asks RocketMQ's clients for none."""
    store, tls = tmp_path / "store", certificates.mutual
    with ExitStack() as stack:

        def start(serve: Any, settings: Any) -> str:
            return str(stack.enter_context(BackgroundService(serve, settings)).address)

        writer = start(serve_writer, writer_settings(store, **tls))
        reader = start(serve_reader, reader_settings(store, writer_address=writer, **tls))
        own = gateway_settings(
            **certificates.settings, writer_address=writer, reader_address=reader
        )
        gateway = start(serve_gateway, own)
        client = stack.enter_context(Client(writer=writer, tls=certificates.alice))
        client.create_topic("mail", queues=1)
        topic, group = v2.Resource(name="mail"), v2.Resource(name="readers-of-mail")
        stub = service_pb2_grpc.MessagingServiceStub(
            stack.enter_context(certificates.channel(gateway))
        )
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


@pytest.mark.parametrize(("calls", "problem"), [(None, "if the service serves TLS"), ("alice", "")])
async def test_a_service_says_why_it_cannot_call_another_one(
    calls: str | None,
    problem: str,
    background: BackgroundLoop,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its calls wait for the other one, which may be about to start: without that nobody would know."""
    monkeypatch.setattr(upstream, "LOOK_SECONDS", 0.05)
    with (
        TlsPort(background, certificates.mutual) as port,
        structlog.testing.capture_logs() as events,
    ):
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
