"""Runs the indexer: settings, index, servicer, server; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.v1 import indexer_pb2
from services import process
from services.accounts.opening import read_accounts
from services.accounts.page_guard import page_guard
from services.arrivals import Arrivals, PageSteps
from services.config.flags import load
from services.config.settings import IndexerSettings
from services.indexer.metrics import IndexerCollector
from services.indexer.servicer import IndexerServicer
from services.metrics.service import ServiceMetrics
from services.rpc.calls import Interceptor
from services.rpc.running_settings import RunningSettings
from services.rpc.server import Contract, RpcServer
from services.settings_servicer import settings_contract
from services.traces import open_traces
from storage.checkpoint.positions import CHECKPOINT_FILE, CheckpointFile, Role
from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.errors import StoreFailed
from storage.files.filesystem import OsFileSystem
from storage.indexer import StoreIndexer

SERVICE: Final = "indexer"
WRITER_HAS_MADE: Final = ("checkpoint", "config/penstock.json")
_LOOK_SECONDS: Final = 0.2


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    settings = load(IndexerSettings, argv, prog=f"penstock {SERVICE}")
    return process.run(SERVICE, settings, lambda stop: serve(settings, stop))


def _announce(address: str) -> None:
    process.announce(SERVICE, address)


async def serve(
    settings: IndexerSettings, stop: asyncio.Event, ready: Callable[[str], None] = _announce
) -> None:
    """Wait for the store, index and serve until ``stop`` is set, drain, make the index durable."""
    with (
        open_traces(SERVICE, settings) as traces,
        ServiceMetrics(SERVICE, settings, page_guard(settings)) as metrics,
    ):
        await _serve(settings, stop, ready, metrics, traces)


async def _serve(
    settings: IndexerSettings,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    metrics: ServiceMetrics,
    traces: Sequence[Interceptor],
) -> None:
    if not await process.wait_for_store(
        settings.store,
        stop,
        timeout_seconds=settings.store_wait_seconds,
        wanted=WRITER_HAS_MADE,
    ):
        return
    store = await asyncio.to_thread(
        StoreIndexer.open,
        settings.store,
        StoreConfig(
            scrub_interval_ms=settings.scrub_interval_ms,
            scrub_bytes_per_s=int(settings.scrub_bytes_per_s),
        ),
        filesystem=OsFileSystem(),
        clock=SystemClock(),
    )
    draining = asyncio.Event()
    page = CheckpointFile.open(OsFileSystem(), settings.store / CHECKPOINT_FILE, Role.READER)
    arrivals = Arrivals(PageSteps(lambda: page, Role.INDEXER))
    try:
        store.start()
        servicer = IndexerServicer(store, arrivals, draining)
        service = indexer_pb2.DESCRIPTOR.services_by_name["Indexer"]
        accounts, _ = read_accounts(settings)
        running = RunningSettings(settings)
        metrics.add(IndexerCollector(store))
        server = RpcServer(
            [Contract(service, servicer), settings_contract(running)],
            settings,
            draining,
            interceptors=(*accounts.interceptors, *traces),
            counts=metrics.counts,
            running=running,
        )
        address = await server.start(settings.listen)
        server.set_serving(serving=True)
        ready(address)
        while not stop.is_set() and store.failure is None:
            await process.sleep_until(stop, _LOOK_SECONDS)
        server.set_serving(serving=store.failure is None)
        draining.set()
        arrivals.close()
        await server.drain()
        if store.failure is not None:  # a new start rebuilds what this one could not write
            raise StoreFailed(store.problem) from store.failure
    finally:
        arrivals.close()
        await asyncio.to_thread(store.close)


if __name__ == "__main__":
    process.leave(main())
