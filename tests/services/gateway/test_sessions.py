"""Sessions are bounded, and end when their client is silent for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest
from messaging_bed import ProducerStream
from real_processes import until
from service_settings import gateway_settings

from services.gateway.__main__ import serve as serve_gateway
from services.gateway.sessions import Sessions
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.testing import BackgroundService


async def test_a_silent_client_is_gone_and_one_that_speaks_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone: list[str] = []
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    sessions = Sessions(most=10, timeout_seconds=60, gone=gone.append)
    for name in ("silent", "speaks"):
        sessions.heard(name, "").renews = True
    now = 61.0
    sessions.heard("speaks", "")
    sessions.expire()

    assert gone == [sessions.owner_of("silent")]
    assert sessions.renewing() == [sessions.owner_of("speaks")]


async def test_a_client_without_leases_goes_without_a_word() -> None:
    gone: list[str] = []
    sessions = Sessions(most=10, timeout_seconds=0, gone=gone.append)
    sessions.heard("producer", "")
    await asyncio.sleep(0.001)
    sessions.expire()

    assert (gone, len(sessions)) == ([], 0)


async def test_of_more_clients_than_are_remembered_the_one_silent_for_longest_goes() -> None:
    gone: list[str] = []
    sessions = Sessions(most=2, timeout_seconds=60, gone=gone.append)
    for name in ("a", "b", "a", "c"):
        sessions.heard(name, "").renews = True

    assert gone == [sessions.owner_of("b")]
    assert [client_id for client_id, _ in sessions] == ["a", "c"]


async def test_who_does_not_say_whose_it_is_keeps_what_is_there_at_the_same_address() -> None:
    sessions = Sessions(most=2, timeout_seconds=60, gone=str)
    sessions.heard("known", "ann").peer = "ipv4:10.0.0.7:4711"
    sessions.heard("without an address", "ann")
    before = {client_id: session.heard_at for client_id, session in sessions}
    await asyncio.sleep(0.01)

    for client_id in ("known", "without an address", "new"):
        sessions.heard_from(client_id, "ipv4:10.0.0.8:4711")
    assert {client_id: session.heard_at for client_id, session in sessions} == before
    sessions.heard_from("known", "ipv6:%5B::ffff:10.0.0.7%5D:4712")
    assert [client_id for client_id, _ in sessions] == ["without an address", "known"]


async def test_another_process_has_other_owners() -> None:
    """What was handed out by one that was killed may not have reached its client."""
    owners = {Sessions(most=2, timeout_seconds=60, gone=str).owner_of("client@1") for _ in range(3)}

    assert len(owners) == 3
    assert all(owner.startswith("client@1@") for owner in owners)


MOST = 3


@pytest.fixture(name="channel", params=[{"sessions_max": MOST}, {"concurrent_calls_max": MOST * 2}])
def _channel(request: pytest.FixtureRequest) -> Iterator[grpc.Channel]:
    settings = gateway_settings(**request.param)
    with (
        BackgroundService(serve_gateway, settings) as gateway,
        grpc.insecure_channel(gateway.address) as channel,
    ):
        yield channel


def test_a_session_too_many_is_refused_until_one_has_ended(channel: grpc.Channel) -> None:
    streams = [ProducerStream(channel, f"client-{number}") for number in range(MOST)]
    assert [stream.settings() for stream in streams] == [v2.OK] * MOST
    refused = ProducerStream(channel, "refused")
    assert (refused.settings(), refused.settings()) == (v2.TOO_MANY_REQUESTS, None)

    assert [stream.settings() for stream in streams] == [v2.OK] * MOST
    heartbeat = service_pb2_grpc.MessagingServiceStub(channel).Heartbeat(
        service_pb2.HeartbeatRequest(), metadata=(("x-mq-client-id", "another"),), timeout=20
    )
    assert heartbeat.status.code == v2.OK
    assert streams.pop().end() == []
    until(lambda: ProducerStream(channel, "later").settings() == v2.OK)
    for stream in streams:
        stream.end()
