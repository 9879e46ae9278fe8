"""A running store for an application's tests: fixtures for pytest.

``pytest_plugins = ["services.testing"]`` in a ``conftest.py`` gives `penstock_store`, a store that runs
for all tests, and for each test `penstock`, a client, and `penstock_topic`, a topic of its own.
pytest-grpc's ``grpc_channel`` and ``grpc_stub`` call the service that has the contract of
``grpc_stub_cls``. The services run in threads of this process, or with ``penstock_processes = true`` in
pytest's settings as processes.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import pytest

from penstock import Client
from services.config.settings import (
    IndexerSettings,
    ProcessSettings,
    ReaderSettings,
    WriterSettings,
)
from services.indexer.__main__ import serve as serve_indexer
from services.local_services import LocalServices
from services.reader.__main__ import serve as serve_reader
from services.writer.__main__ import serve as serve_writer

T = TypeVar("T")
START_SECONDS_MAX: Final = 60.0
READY_SECONDS_MAX: Final = 30.0
FREE_PORT: Final = "127.0.0.1:0"
SMALL_FILES: Final[Mapping[str, int]] = {
    "commit_log_file_size": 8 << 20,
    "consume_queue_file_size": 20_000,
    "index_slot_count": 1_000,
    "index_entry_count": 4_000,
}
_SERVICE_OF: Final = {"writer_pb2_grpc": "writer", "indexer_pb2_grpc": "indexer"}  # else the reader
_PROCESSES: Final = "penstock_processes"


@dataclass(frozen=True)
class RunningStore:
    """Services over one store directory, with the addresses where they listen."""

    directory: Path
    writer: str
    reader: str
    indexer: str
    gateway: str
    """Where RocketMQ's clients connect."""

    def client(self, **options: Any) -> Client:
        """Return a new client; ``options`` are those of `penstock.Client`."""
        return Client(writer=self.writer, reader=self.reader, indexer=self.indexer, **options)


@contextmanager
def running_store(
    directory: Path, *, processes: bool = False, **settings: Any
) -> Iterator[RunningStore]:
    """Run writer, reader with its gateway, and indexer on free ports until the block ends.

    ``directory`` is the store's; the writer makes it. With ``processes`` the log of the services is beside
    it. ``settings`` are the services' own, by their names in a settings file; each service takes those that
    it has. Raises OSError or StoreError if a service does not start.
    """
    with ExitStack() as stack:
        start = _start_processes if processes else _start_threads
        store = RunningStore(directory, **start(stack, directory, {**SMALL_FILES, **settings}))
        with store.client() as client:
            client.wait_ready(READY_SECONDS_MAX)
        yield store


def _start_processes(
    stack: ExitStack, directory: Path, settings: Mapping[str, Any]
) -> dict[str, str]:
    flags = {name: f"--{name.replace('_', '-')}" for name in settings}
    services = LocalServices.start(
        directory,
        directory.parent / f"{directory.name}.log",
        options=[
            flags[name] if value is True else f"{flags[name]}={value}"
            for name, value in settings.items()
        ],
        addresses=dict.fromkeys(("writer", "reader", "indexer", "gateway"), FREE_PORT),
    )
    stack.callback(services.stop)
    return dict(services.addresses)


def _start_threads(
    stack: ExitStack, directory: Path, settings: Mapping[str, Any]
) -> dict[str, str]:
    def start(
        serve: Callable[..., Any], kind: type[ProcessSettings], **own: str
    ) -> BackgroundService:
        taken = {name: settings[name] for name in settings.keys() & kind.model_fields.keys()}
        given = {"store": directory, "listen": FREE_PORT, **own, **taken}
        return stack.enter_context(BackgroundService(serve, kind(**given)))

    writer = start(serve_writer, WriterSettings)
    reader = start(
        serve_reader, ReaderSettings, writer_address=writer.address, gateway_listen=FREE_PORT
    )
    indexer = start(serve_indexer, IndexerSettings)
    return {
        "writer": writer.address,
        "reader": reader.address,
        "indexer": indexer.address,
        "gateway": reader.gateway_address,
    }


class BackgroundLoop:
    """An event loop in a thread of its own; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> BackgroundLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 30) -> T:
        """Run a coroutine to its end and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def call(self, function: Callable[[], T]) -> T:
        """Run a plain function on the loop and return its result."""

        async def run() -> T:
            return function()

        return self.run(run())

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class BackgroundService:
    """A service's whole ``serve`` coroutine on a background loop; a context manager.

    ``stop`` drains the service as a signal would.
    """

    def __init__(self, serve: Callable[..., Coroutine[Any, Any, None]], settings: Any) -> None:
        self._serve = serve
        self._settings = settings
        self._background = BackgroundLoop()
        self.address = ""
        self.gateway_address = ""  # of a reader that has one

    def __enter__(self) -> BackgroundService:
        self._background.__enter__()
        ready = threading.Event()

        def on_ready(address: str, gateway_address: str = "") -> None:
            self.address, self.gateway_address = address, gateway_address
            ready.set()

        async def run() -> None:
            self._stop = asyncio.Event()
            try:
                await self._serve(self._settings, self._stop, on_ready)
            finally:
                ready.set()

        self._running = asyncio.run_coroutine_threadsafe(run(), self._background._loop)
        if not ready.wait(START_SECONDS_MAX):
            raise TimeoutError("the service does not serve")
        if not self.address:
            try:
                self._running.result(START_SECONDS_MAX)
            finally:
                self._background.__exit__()
        return self

    def stop(self, timeout_s: float = 30) -> None:
        """Drain and wait for the end."""
        if self.address:
            self._background.call(self._stop.set)
            self._running.result(timeout_s)
            self.address = ""

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._background.__exit__()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting ``penstock_processes``."""
    parser.addini(_PROCESSES, "run Penstock's services as processes", type="bool", default=False)


@pytest.fixture(scope="session")
def penstock_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningStore]:
    """A running store in a temporary directory, for the whole run."""
    directory = tmp_path_factory.mktemp("penstock") / "store"
    with running_store(directory, processes=bool(request.config.getini(_PROCESSES))) as store:
        yield store


@pytest.fixture
def penstock(penstock_store: RunningStore) -> Iterator[Client]:
    """A client of the running store."""
    with penstock_store.client() as client:
        yield client


@pytest.fixture
def penstock_topic(penstock: Client, request: pytest.FixtureRequest) -> str:
    """The name of a topic that this test alone uses; it has one queue."""
    name = re.sub(r"[^\w-]", "-", request.node.nodeid.rpartition("::")[2])[:100]
    taken = {topic.name for topic in penstock.topics()}
    while name in taken:
        name += "-"
    penstock.create_topic(name, queues=1)
    return name


@pytest.fixture(scope="module")
def grpc_addr(penstock_store: RunningStore, grpc_stub_cls: type) -> str:
    """Return the address of the service that has the contract of ``grpc_stub_cls``."""
    module = grpc_stub_cls.__module__.rpartition(".")[2]
    address: str = getattr(penstock_store, _SERVICE_OF.get(module, "reader"))
    return address


@pytest.fixture(scope="module")
def grpc_create_channel(grpc_addr: str) -> Callable[..., grpc.Channel]:
    """Return pytest-grpc's maker of channels, to the running store."""
    return lambda options=None: grpc.insecure_channel(grpc_addr, options)
