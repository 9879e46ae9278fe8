"""A proxy that the environment names has nothing to do with this machine, and is named where a call fails in it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from penstock import Client, DeadlineExceeded, Unavailable
from penstock.addresses import channel_options
from penstock.proxies import PROXY_VARIABLES, way_to

NO_PROXY_VARIABLES = ("no_grpc_proxy", "no_proxy")
ELSEWHERE = "192.0.2.1:5801"  # of the addresses for documentation: nobody's


class Proxy:
    """Listens, and notes whether anybody came."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def was_used(self, wait_s: float = 0.0) -> bool:
        self.listening.settimeout(wait_s)
        with suppress(TimeoutError, BlockingIOError):
            self.listening.accept()[0].close()
            return True
        return False


@pytest.fixture(name="proxy")
def _proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in (*PROXY_VARIABLES, *NO_PROXY_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    proxy = Proxy()
    with proxy.listening:
        yield proxy


def call(address: str, options: Any) -> None:
    with grpc.insecure_channel(address, options) as channel, suppress(grpc.RpcError):
        channel.unary_unary("/grpc.health.v1.Health/Check")(
            health_pb2.HealthCheckRequest().SerializeToString(), timeout=0.5
        )


@pytest.mark.parametrize(
    ("address", "environment", "is_named"),
    [
        (ELSEWHERE, {"http_proxy": "URL"}, True),
        (ELSEWHERE, {"https_proxy": "URL"}, True),
        (ELSEWHERE, {"grpc_proxy": "URL", "http_proxy": "http://127.0.0.1:1"}, True),
        (ELSEWHERE, {"grpc_proxy": "", "http_proxy": "URL"}, False),
        (ELSEWHERE, {"https_proxy": "https://127.0.0.1:1", "http_proxy": "URL"}, False),
        ("127.0.0.1:1", {"http_proxy": "URL"}, False),
        ("localhost:1", {"https_proxy": "URL"}, False),
        ("[::1]:1", {"grpc_proxy": "URL"}, False),
        ("127.1.2.3:1", {"grpc_proxy": "URL"}, False),
        ("0.0.0.0:1", {"http_proxy": "URL"}, False),
        ("[::]:1", {"http_proxy": "URL"}, False),
        ("[::ffff:127.0.0.1]:1", {"http_proxy": "URL"}, False),
        ("[::ffff:0.0.0.0]:1", {"http_proxy": "URL"}, False),
        ("[::ffff:192.0.2.1]:1", {"http_proxy": "URL"}, True),
    ],
)
def test_calls_go_through_the_proxy_that_an_error_would_name(
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    environment: dict[str, str],
    is_named: bool,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("URL", proxy.url))
    assert (f"_proxy={proxy.url}" in way_to(address)) is is_named
    call(address, channel_options(address))
    assert proxy.was_used() is is_named


def test_the_password_of_a_proxy_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("grpc_proxy", "http://me:secret@proxy.example.org:3128/")
    assert "grpc_proxy=http://proxy.example.org:3128, " in way_to(ELSEWHERE)


def test_an_error_names_the_proxy_that_does_not_answer(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy.url)
    with Client(writer=ELSEWHERE, timeout_s=0.5) as client:
        with pytest.raises(DeadlineExceeded, match=f"proxy of http_proxy={proxy.url}"):
            client.topics()
        with pytest.raises(Unavailable, match=f"{ELSEWHERE} is not ready through the proxy"):
            client.wait_ready(0.1, services=["writer"])


def test_an_error_names_the_proxy_where_nobody_listens(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy.url)
    proxy.listening.close()
    with Client(writer=ELSEWHERE, reader=ELSEWHERE, timeout_s=0.5) as client:
        with pytest.raises(
            Unavailable, match=rf"refused.*, called through the proxy of http_proxy={proxy.url}"
        ):
            client.topics()
        with pytest.raises(Unavailable, match=f"through the proxy of http_proxy={proxy.url}"):
            list(client.pull_stream("t", queue_id=0, offset=0))


def test_an_error_about_this_machine_names_no_proxy(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy.url)
    with (
        Client(writer="127.0.0.1:1", timeout_s=0.3) as client,
        pytest.raises(Unavailable) as refused,
    ):
        client.topics()
    assert "proxy" not in str(refused.value)
    assert not proxy.was_used()
