"""Peers as gRPC names them become hosts as records name them."""

from __future__ import annotations

import pytest

from services.peers import host_of_peer
from storage.format.hosts import encode_host


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:51234", "10.0.0.7:51234"),
        ("ipv6:[::1]:51234", "[::1]:51234"),
        ("ipv6:%5B2001:db8::7%5D:80", "[2001:db8::7]:80"),
        ("ipv6:%5Bfe80::1%25eth0%5D:80", "[fe80::1]:80"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:80", "10.0.0.7:80"),
        ("unix:/run/penstock.sock", "127.0.0.1:0"),
        ("unix:", "127.0.0.1:0"),
        ("ipv4:nonsense", "127.0.0.1:0"),
        ("", "127.0.0.1:0"),
    ],
)
def test_a_peer_becomes_a_host_that_can_be_encoded(peer: str, host: str) -> None:
    assert host_of_peer(peer) == host
    assert len(encode_host(host)) in (8, 20)
