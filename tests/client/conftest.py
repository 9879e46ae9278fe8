"""Clients of a running store, whose calls meet the faults that a test asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from faulty_penstock import FaultyPenstock
from faulty_penstock import faulty_fixture as faulty_fixture
from faulty_penstock import running_fixture as running_fixture

from penstock import AsyncClient, Client


@pytest.fixture(name="client")
def _client(faulty: FaultyPenstock) -> Iterator[Client]:
    with Client(**faulty.addresses, timeout_s=20) as client:
        yield client


@pytest_asyncio.fixture(name="aclient")
async def _aclient(faulty: FaultyPenstock) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(**faulty.addresses, timeout_s=20) as client:
        yield client
