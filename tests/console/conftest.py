"""A running store with a console in front of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock import Client
from services.config.settings import ConsoleSettings
from services.console.__main__ import client_of
from services.console.app import make_app
from services.testing import RunningStore, running_store
from storage.clock import SystemClock

HERE = "http://127.0.0.1:5805"
Open = Callable[..., "Browser"]
numbers = count()


class Browser:
    """What a browser does: pages, and the forms that it finds on them."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, address: str, **options: Any) -> Any:
        return self.client.get(address, **options)

    def token(self, address: str = "/later") -> str:
        found = re.search(r'name="form_token" value="([0-9a-f]+)"', self.get(address).text)
        assert found is not None
        return found[1]

    def post(self, address: str, *, headers: dict[str, str] | None = None, **fields: str) -> Any:
        if "form_token" not in fields:
            fields["form_token"] = self.token()
        return self.client.post(address, data=fields, headers={"origin": HERE} | (headers or {}))


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    with running_store(tmp_path_factory.mktemp("console") / "store") as running:
        yield running


@pytest.fixture(scope="session")
def client(store: RunningStore) -> Iterator[Client]:
    with store.client() as opened:
        yield opened


@pytest.fixture
def topic(client: Client) -> str:
    """The name of a topic that this test alone uses; it has one queue."""
    name = f"topic-{next(numbers)}"
    client.create_topic(name, queues=1)
    return name


@pytest.fixture
def open_console(store: RunningStore) -> Iterator[Open]:
    """Opens a console over the running store, with other settings or another clock if they are given."""
    with ExitStack() as stack:

        def open_one(clock: Any = None, **settings: Any) -> Browser:
            addresses = {name: getattr(store, name) for name in ("writer", "reader", "indexer")}
            chosen = ConsoleSettings(**(addresses | settings))
            app = make_app(chosen, clock or SystemClock(), lambda *keys: client_of(chosen, *keys))
            return Browser(stack.enter_context(TestClient(app, base_url=HERE)))

        yield open_one


@pytest.fixture
def browser(open_console: Open) -> Browser:
    return open_console()
