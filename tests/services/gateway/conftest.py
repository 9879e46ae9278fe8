"""A gateway in this process, over a real writer and a reader whose leases the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_leases import FakeLeases, serve_fake_reader
from gateway_bed import GatewayBed
from service_settings import gateway_settings, reader_settings, writer_settings

from services.gateway.__main__ import serve as serve_gateway
from services.rpc import limits
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer
from storage.files.open_files import at_most

TOLD_APART = 777  # of connections


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


@pytest.fixture
def port_shares(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One part of how many a server with ``TOLD_APART`` connections may take of the open files, on each address."""
    shares = []

    def noted(wanted: int, *, share: int) -> int:
        if wanted == TOLD_APART:
            shares.append(share)
        return at_most(wanted, share=share)

    monkeypatch.setattr(limits.open_files, "at_most", noted)
    return shares
