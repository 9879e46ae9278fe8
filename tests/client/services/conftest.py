"""Both clients against the real writer, reader and indexer, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from three_services import ThreeServices, three_services

from penstock import AsyncClient, Client


@pytest.fixture(scope="module", name="services")
def _services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("store")) as services:
        yield services


@pytest.fixture(scope="module", name="client")
def _client(services: ThreeServices) -> Iterator[Client]:
    with services.running.client() as client:
        yield client


@pytest_asyncio.fixture(name="aclient")
async def _aclient(client: Client) -> AsyncIterator[AsyncClient]:
    addresses = client.addresses
    async with AsyncClient(
        writer=addresses.writer, reader=addresses.reader, indexer=addresses.indexer
    ) as aclient:
        yield aclient


@pytest.fixture(name="topic")
def _topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with four queues."""
    name = request.node.name[:100].replace("[", "-").rstrip("]")
    client.create_topic(name, queues=4)
    return name
