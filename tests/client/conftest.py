"""Clients of fake services."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from fake_penstock import FakePenstock

from penstock import AsyncClient, Client


@pytest.fixture(name="fake")
def _fake() -> Iterator[FakePenstock]:
    fake = FakePenstock()
    fake.store.topics["orders"] = 4
    yield fake
    fake.store.answers_wait.set()
    fake.stop()


@pytest.fixture(name="client")
def _client(fake: FakePenstock) -> Iterator[Client]:
    with Client(**fake.addresses, timeout_s=20) as client:
        yield client


@pytest_asyncio.fixture(name="aclient")
async def _aclient(fake: FakePenstock) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(**fake.addresses, timeout_s=20) as client:
        yield client
