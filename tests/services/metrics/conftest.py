"""A running store under ``penstock serve``, used, and the page of its metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from run_cli import small_services
from used_store import MetricsPage, use

from penstock import Client
from services.local_services import LocalServices
from services.testing import FREE_PORT


@pytest.fixture(scope="session")
def used_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServices]:
    listen = dict.fromkeys(("gateway", "metrics"), FREE_PORT)
    with small_services(tmp_path_factory.mktemp("used"), **listen) as services:
        at = services.addresses
        with Client(writer=at["writer"], reader=at["reader"], indexer=at["indexer"]) as client:
            client.wait_ready(30)
            use(client)
        yield services


@pytest.fixture(scope="session")
def metrics_page(used_store: LocalServices) -> MetricsPage:
    """The page once all services show what was done."""
    until = time.monotonic() + 30
    while True:
        page = MetricsPage.of(used_store.addresses["metrics"])
        behind = ("penstock_index_behind_bytes", "rocketmq_storage_flush_behind_bytes")
        has_looked = all(
            page.value("penstock_event_loop_delay_seconds_count", service=service)
            for service in ("writer", "reader", "indexer")
        )
        if (has_looked and not sum(map(page.value, behind))) or time.monotonic() > until:
            return page
        time.sleep(0.1)
