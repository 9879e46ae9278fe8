"""/metrics over HTTP: callers who hang or flood, ports that are taken, parts that fail, addresses that are refused."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from free_ports import free_port
from prometheus_client.core import Metric
from service_settings import gateway_settings, indexer_settings, writer_settings

from services.config.flags import load
from services.config.settings import IndexerSettings, ServeSettings
from services.gateway.__main__ import serve as serve_gateway
from services.metrics import endpoint as endpoint_module
from services.metrics.endpoint import MetricsEndpoint
from services.metrics.exposition import gauge
from services.metrics.service import ServiceMetrics
from services.metrics.supervised import SupervisedMetrics
from services.rpc.ports import CannotListen
from services.testing import BackgroundService


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    made = MetricsEndpoint("127.0.0.1:0", lambda: b"page\n")
    yield made
    made.close()


def get(address: str, path: str = "/metrics", method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_it_serves_one_path_and_one_method(endpoint: MetricsEndpoint) -> None:
    assert get(endpoint.address) == (200, b"page\n")
    assert get(endpoint.address, "/metrics?name[]=up") == (200, b"page\n")
    assert get(endpoint.address, "/")[0] == 404
    assert get(endpoint.address, method="POST")[0] == 501


def test_callers_who_say_nothing_keep_no_other_from_it(
    endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = endpoint.address.rpartition(":")
    silent = [
        socket.create_connection((host, int(port))) for _ in range(endpoint_module.CONNECTIONS_MAX)
    ]
    try:
        time.sleep(0.2)
        with pytest.raises(
            (OSError, http.client.HTTPException)
        ):  # closed: as many as may be are open
            get(endpoint.address)
    finally:
        for each in silent:
            each.close()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            assert get(endpoint.address)[0] == 200
            return
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
    pytest.fail("their places are not free again")


def test_a_taken_address_is_said() -> None:
    endpoint = MetricsEndpoint("127.0.0.1:0", lambda: b"")
    try:
        with pytest.raises(CannotListen, match="is the address taken"):
            MetricsEndpoint(endpoint.address, lambda: b"")
    finally:
        endpoint.close()


class Broken:
    def collect(self) -> Iterator[Metric]:
        yield gauge("first", "Before it breaks.", 1)
        raise OSError("the disk is gone")


async def test_a_part_that_fails_is_left_out_and_counted(tmp_path: Path) -> None:
    settings = indexer_settings(tmp_path, metrics_listen=f"127.0.0.1:{free_port()}")
    with ServiceMetrics("indexer", settings) as metrics:
        metrics.add(Broken())
        metrics.add(type("Whole", (), {"collect": lambda _: iter([gauge("whole", "", 2)])})())
        for _ in range(2):
            page = metrics.page().decode()
        address = settings.metrics_listen
        read = await asyncio.to_thread(
            lambda: urllib.request.urlopen(f"http://{address}/metrics").read()
        )
    assert 'first{service="indexer"} 1' in page
    assert 'whole{service="indexer"} 2' in page
    assert 'penstock_metrics_failures_total{part="Broken",service="indexer"} 2' in page
    assert b'penstock_metrics_failures_total{part="Broken",service="indexer"} 3' in read


async def test_without_an_address_nothing_is_counted_nor_served(tmp_path: Path) -> None:
    threads = threading.active_count()
    with ServiceMetrics("writer", writer_settings(tmp_path)) as metrics:
        assert metrics.counts is None
        metrics.refused(OSError())
        assert threading.active_count() == threads


def test_a_service_that_does_not_answer_is_down_and_the_others_are_shown() -> None:
    endpoint = MetricsEndpoint("127.0.0.1:0", lambda: b"# HELP a b\n# TYPE a gauge\na 1\n")
    try:
        addresses = {"writer": endpoint.address, "reader": f"127.0.0.1:{free_port()}"}
        page = SupervisedMetrics(addresses, lambda: {"writer": 0, "reader": 3}).page().decode()
    finally:
        endpoint.close()
    assert 'penstock_up{service="writer"} 1' in page
    assert 'penstock_up{service="reader"} 0' in page
    assert 'penstock_restarts_total{service="reader"} 3' in page
    assert page.endswith("a 1\n")


@pytest.mark.parametrize("kind", [IndexerSettings, ServeSettings])
@pytest.mark.parametrize("listen", ["0.0.0.0:9000", "[::]:9000", "192.0.2.1:9000", "host:9000"])
def test_other_machines_reach_it_only_where_that_is_said(
    kind: type[IndexerSettings], listen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--store", "s", "--metrics-listen", listen]
    with pytest.raises(SystemExit) as caught:
        load(kind, flags, prog="penstock x")
    assert caught.value.code == 2
    assert "--plaintext" in capsys.readouterr().err
    assert load(kind, [*flags, "--plaintext"], prog="penstock x").metrics_listen == listen


def test_the_page_of_a_gateway_that_other_machines_reach_has_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = gateway_settings(metrics_listen="0.0.0.0:0", **certificates.settings)
    made: list[MetricsEndpoint] = []

    class Kept(MetricsEndpoint):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.metrics.service.MetricsEndpoint", Kept)
        with BackgroundService(serve_gateway, settings):
            port = int(made[0].address.rpartition(":")[2])
            context = ssl.create_default_context(cafile=certificates.ca)
            secure = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
            secure.request("GET", "/metrics")
            assert secure.getresponse().status == 200
            secure.close()
            plain = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            with pytest.raises((http.client.HTTPException, OSError)):
                plain.request("GET", "/metrics")
                plain.getresponse()
