"""Peers as gRPC names them become hosts as records name them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from three_services import three_services

from penstock.v1 import common_pb2, reader_pb2, writer_pb2
from services.rpc.peers import host_of_peer
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


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
def test_a_caller_over_ipv6_is_in_the_record(tmp_path: Path) -> None:
    with three_services(tmp_path / "store", listen="[::1]:0") as services:
        services.writer.CreateTopic(
            writer_pb2.CreateTopicRequest(name="t", queue_count=1), timeout=20
        )
        request = writer_pb2.ProduceRequest(messages=[common_pb2.Message(topic="t", body=b"x")])
        services.writer.Produce(request, timeout=20)
        pull = reader_pb2.PullRequest(topic="t", decode=True)
        [record] = services.reader.Pull(pull, timeout=20).decoded
        assert record.born_host.startswith("[0:0:0:0:0:0:0:1]:")
        assert record.body == b"x"
