"""Callers that mean no good, over raw HTTP/2: memory stays bounded, and who is honest is served."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from raw_http2 import (
    CONTINUATION,
    DATA,
    HEADERS,
    MORE_THAN_TWO_GIB,
    PING,
    RST_STREAM,
    SETTINGS,
    RawConnection,
    field,
    frame,
    message_head,
)
from real_processes import SMALL_STORE, Running, one_service

from penstock import Client

CONNECTIONS = 8
MEBIBYTE = 1 << 20
MANY_CONNECTIONS = 250
MEMORY_MAX = 64 * MEBIBYTE
MEMORY_OF_MANY_MAX = 160 * MEBIBYTE
PATIENCE_S = 10.0  # machines are busy; without a bound an honest call waits until its deadline


def rapid_reset(connection: RawConnection, hundreds: int = 20) -> None:
    """Begin calls and take each back at once."""
    for _ in range(hundreds):
        calls = [connection.begin_call() for _ in range(100)]
        reset = b"\0\0\0\x08"  # CANCEL
        data = [head + frame(RST_STREAM, reset, stream=stream) for stream, head in calls]
        if not connection.send(b"".join(data)):
            return


def pings(connection: RawConnection) -> None:
    """Ping without reading the answers."""
    for _ in range(200):
        if not connection.send(frame(PING, b"12345678") * 500):
            return


def settings(connection: RawConnection) -> None:
    """Send settings without reading what acknowledges them."""
    for _ in range(200):
        if not connection.send(frame(SETTINGS) * 500):
            return


def declared_length(connection: RawConnection) -> None:
    """Say that a message of more than 2 GiB follows."""
    for _ in range(20):
        stream, head = connection.begin_call()
        data = message_head(MORE_THAN_TWO_GIB) + bytes(1000)
        if not connection.send(head + frame(DATA, data, stream=stream)):
            return


def continuations(connection: RawConnection) -> None:
    """Begin a call whose header fields do not end."""
    if connection.send(frame(HEADERS, field("x-first", "x"), stream=1)):
        fields = field("x-more", "x" * 100) * 140
        for _ in range(1_000):
            if not connection.send(frame(CONTINUATION, fields, stream=1)):
                return


FLOODS = [rapid_reset, pings, settings, declared_length]


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    flags = [*SMALL_STORE, "--access-log", "none"]
    with one_service("writer", tmp_path_factory.mktemp("floods") / "store", *flags) as running:
        yield running


@pytest.fixture(scope="module")
def client(writer: Running) -> Iterator[Client]:
    with Client(writer=writer.wait_serving("writer")[0], timeout_s=30) as client:
        client.wait_ready(30, services=["writer"])
        client.create_topic("t", queues=1)
        for _ in range(50):
            client.produce("t", b"warm", queue_id=0)
        yield client


def memory_bytes(writer: Running) -> int:
    status = Path(f"/proc/{writer.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


def beside(
    client: Client,
    address: str,
    flood: Callable[[RawConnection], None],
    connections: int = CONNECTIONS,
) -> list[float]:
    """Flood over some connections; return how long each honest produce took meanwhile."""

    def run() -> None:
        try:
            with RawConnection(address) as connection:
                flood(connection)
        except OSError:
            pass  # refused

    threads = [threading.Thread(target=run) for _ in range(connections)]
    for thread in threads:
        thread.start()
    taken = []
    while any(thread.is_alive() for thread in threads) or len(taken) < 20:
        began = time.monotonic()
        client.produce("t", b"honest", queue_id=0)
        taken.append(time.monotonic() - began)
    for thread in threads:
        thread.join()
    return taken


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
def test_a_flood_takes_no_memory_and_stops_nobody(
    writer: Running, client: Client, flood: Callable[[RawConnection], None]
) -> None:
    address = client.addresses.writer
    before = memory_bytes(writer)
    taken = beside(client, address, flood)
    grown = memory_bytes(writer) - before
    assert grown < MEMORY_MAX
    assert max(taken) < PATIENCE_S
    assert writer.process.poll() is None


def test_calls_that_many_connections_take_back_take_little_memory_and_stop_nobody(
    writer: Running, client: Client
) -> None:
    """Of honest calls gRPC cancels some, and the client makes them again."""
    address, before = client.addresses.writer, memory_bytes(writer)
    with Client(writer=address, timeout_s=120) as patient:  # for a machine that is busy
        beside(patient, address, lambda each: rapid_reset(each, 4), MANY_CONNECTIONS)
    assert memory_bytes(writer) - before < MEMORY_OF_MANY_MAX
    assert writer.process.poll() is None


def test_many_bodies_that_hardly_come_stop_nobody(writer: Running, client: Client) -> None:
    """What has come of them is kept, and no more; the connections stay until their callers go."""
    before = memory_bytes(writer)
    with ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(RawConnection(client.addresses.writer))
            stream, head = connection.begin_call()
            connection.send(head + frame(DATA, message_head(8 * MEBIBYTE) + b"x", stream=stream))
        for _ in range(20):
            began = time.monotonic()
            client.produce("t", b"honest", queue_id=0)
            assert time.monotonic() - began < PATIENCE_S
        assert memory_bytes(writer) - before < MEMORY_MAX
    assert writer.process.poll() is None


def test_header_fields_without_an_end_stop_nobody(writer: Running, client: Client) -> None:
    """They take memory that gRPC does not bound (docs/operations.md)."""
    assert max(beside(client, client.addresses.writer, continuations)) < PATIENCE_S
    assert writer.process.poll() is None
