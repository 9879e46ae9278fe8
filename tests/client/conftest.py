"""Clients of a running store, whose calls meet the faults that a test asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from faulty_penstock import FaultyPenstock

from penstock import AsyncClient, Client
from services.testing import RunningStore, running_store


@pytest.fixture(scope="session", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    with running_store(tmp_path_factory.mktemp("running") / "store") as store:
        yield store


@pytest.fixture(name="faulty")
def _faulty(running: RunningStore) -> Iterator[FaultyPenstock]:
    faulty = FaultyPenstock(running)
    faulty.direct.create_topic("orders", queues=4)
    yield faulty
    faulty.close()


@pytest.fixture(name="client")
def _client(faulty: FaultyPenstock) -> Iterator[Client]:
    with Client(**faulty.addresses, timeout_s=20) as client:
        yield client


@pytest_asyncio.fixture(name="aclient")
async def _aclient(faulty: FaultyPenstock) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(**faulty.addresses, timeout_s=20) as client:
        yield client
