"""How long a connection may take to stand, and how soon a service that is back is found."""

from __future__ import annotations

import threading
import time

import grpc
import pytest
from faulty_penstock import FaultyPenstock
from slow_link import SlowLink

from penstock import Client, RetryPolicy, Unavailable, UnknownOutcome
from penstock.channel import CHANNEL_OPTIONS

NEVER_AGAIN = RetryPolicy(unreachable_s_max=0)
FOUND_AGAIN_S = 15.0  # the longest pause between two attempts to connect is 2 s, gRPC's own 120 s


def far_client(link: SlowLink) -> Client:
    address = link.address
    return Client(writer=address, reader=address, indexer=address, timeout_s=30, retry=NEVER_AGAIN)


def test_first_calls_over_a_slow_link_succeed_without_being_repeated(
    faulty: FaultyPenstock,
) -> None:
    """A connection may take as long as a call; grpc gave it a tenth of a second."""
    for _ in range(2):
        with SlowLink(faulty.address, 0.25) as link, far_client(link) as client:
            client.produce("orders", b"from afar", queue_id=0)
            assert client.pull("orders", 0, 0, max_messages=1).records[0].body == b"from afar"
        assert link.connection_count == 1  # none in vain
    assert faulty.bodies("orders", 0) == [b"from afar"] * 2


def test_a_service_that_is_back_is_found_at_once(faulty: FaultyPenstock) -> None:
    """By a call that waits for it: a refused connection is tried again soon, however long one that hangs is given."""
    with Client(**faulty.addresses, timeout_s=30) as client:
        client.produce("orders", b"before", queue_id=0)
        faulty.stop()
        with pytest.raises((Unavailable, UnknownOutcome)):
            client.produce("orders", b"lost", queue_id=0, timeout_s=5)  # the pauses grow meanwhile
        began = time.monotonic()
        threading.Timer(0.3, faulty.start).start()
        client.produce("orders", b"after", queue_id=0)
        assert time.monotonic() - began < FOUND_AGAIN_S
    assert faulty.bodies("orders", 0) == [b"before", b"after"]


def test_an_address_where_nobody_listens_is_told_at_once(faulty: FaultyPenstock) -> None:
    """A refusal needs no time-out."""
    faulty.stop()
    began = time.monotonic()
    with grpc.insecure_channel(faulty.address, CHANNEL_OPTIONS) as channel:
        call = channel.unary_unary("/penstock.v1.Writer/Produce")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=30)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert time.monotonic() - began < 15
