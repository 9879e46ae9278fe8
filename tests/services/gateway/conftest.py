"""A gateway in this process, over a real writer and a reader whose leases the test decides."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from background_loop import BackgroundService
from fake_leases import FakeLeases, serve_fake_reader
from gateway_bed import GatewayBed
from service_settings import gateway_settings, reader_settings, writer_settings

from services.gateway.__main__ import serve as serve_gateway
from services.writer.__main__ import serve as serve_writer


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    store: Path = tmp_path_factory.mktemp("gateway") / "store"
    leases = FakeLeases()

    async def fake(settings: Any, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        await serve_fake_reader(leases, settings, stop, ready)

    with (
        BackgroundService(serve_writer, writer_settings(store)) as writer,
        BackgroundService(fake, reader_settings(store)) as reader,
        BackgroundService(
            serve_gateway,
            gateway_settings(
                writer_address=writer.address, reader_address=reader.address, push_lease_ms=1_200
            ),
        ) as gateway,
    ):
        made = GatewayBed(gateway, writer, leases)
        made.create("orders", 4)
        made.create("ordered", 4, "FIFO")
        yield made
        made.channel.close()


@pytest.fixture(name="certificate", scope="module")
def _certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
            "-keyout", key, "-out", certificate,
        ],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    return certificate, key
