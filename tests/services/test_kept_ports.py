"""A port that is kept is nobody else's, and the service that it is for serves on it, again and again."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from services.config.flags import load
from services.config.settings import ServeSettings, WriterSettings
from services.rpc.limits import server_options
from services.rpc.ports import CannotListen, check_free, keep_port
from services.supervisor import CALLS, child_arguments, with_ports


def served(address: str) -> grpc.Server:
    settings = load(WriterSettings, ["--store", "unused"], prog="test")
    server = grpc.server(ThreadPoolExecutor(1), options=server_options(settings))
    server.add_insecure_port(address)
    server.start()
    return server


def test_a_service_serves_on_a_kept_port_after_each_start() -> None:
    address, kept = keep_port("127.0.0.1:0")
    with kept:
        host, _, port = address.rpartition(":")
        assert int(port) > 0
        for _ in range(2):
            check_free(address)
            server = served(address)
            with pytest.raises(RuntimeError):  # it is one service's, not a lottery
                served(address)
            with socket.create_connection((host, int(port)), 5):
                pass
            server.stop(None).wait()


def test_a_kept_port_is_given_to_nobody_else() -> None:
    address, kept = keep_port("127.0.0.1:0")
    with kept:
        port = int(address.rpartition(":")[2])
        with pytest.raises(OSError), socket.socket() as other:
            other.bind(("127.0.0.1", port))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(CannotListen):
            keep_port(f"127.0.0.1:{listening.getsockname()[1]}")


def test_services_on_any_ports_are_told_at_once_where_the_others_will_be() -> None:
    """So none waits until another one serves: the reader reads a broker's directory while the writer recovers it."""
    names = ("writer", "reader", "indexer", "gateway")
    listens = [f"--{name}-listen=127.0.0.1:0" for name in names]
    given = load(ServeSettings, ["--store", "unused", *listens], prog="test")
    with with_ports(given) as settings:
        addresses = {getattr(settings, f"{name}_listen") for name in names}
        assert len(addresses) == 4
        assert not any(address.endswith(":0") for address in addresses)
        for service, called in CALLS.items():
            arguments = child_arguments(service, settings)
            for each in called:
                place = arguments.index(f"--{each}-address")
                assert arguments[place + 1] == getattr(settings, f"{each}_listen")
        arguments = child_arguments("reader", settings)
        assert arguments[arguments.index("--gateway-listen") + 1] == settings.gateway_listen
