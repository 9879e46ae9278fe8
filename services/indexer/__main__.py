"""Runs the indexer: settings, index, servicer, server; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.v1 import indexer_pb2
from services import process
from services.accounts.opening import read_accounts
from services.arrivals import Arrivals, PageSteps
from services.config.settings import IndexerSettings
from services.indexer.metrics import IndexerCollector
from services.indexer.servicer import IndexerServicer
from services.ports import ServicePorts
from services.rpc.server import Contract
from storage.checkpoint.positions import CHECKPOINT_FILE, CheckpointFile, Role
from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.errors import StoreFailed
from storage.files.filesystem import FileSystem
from storage.indexer import StoreIndexer

SERVICE: Final = "indexer"
WRITER_HAS_MADE: Final = ("checkpoint", "config/penstock.json")
_LOOK_SECONDS: Final = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    return process.run(SERVICE, IndexerSettings, argv, serve)


async def serve(
    settings: IndexerSettings,
    stop: asyncio.Event,
    ready: process.Ready,
) -> None:
    """Wait for the store, index and serve until ``stop`` is set, drain, make the index durable."""
    with ServicePorts(SERVICE, settings) as ports:
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
            filesystem=FileSystem(),
            clock=SystemClock(),
        )
        page = CheckpointFile.open(FileSystem(), settings.store / CHECKPOINT_FILE, Role.READER)
        arrivals = Arrivals(PageSteps(lambda: page, Role.INDEXER))
        try:
            store.start()
            servicer = IndexerServicer(store, arrivals, ports.draining)
            service = indexer_pb2.DESCRIPTOR.services_by_name["Indexer"]
            accounts, _ = read_accounts(settings)
            ports.metrics.add(IndexerCollector(store))
            server = ports.server(
                [Contract(service, servicer), ports.settings_contract], accounts.interceptors
            )
            address = await server.start(settings.listen)
            server.set_serving(serving=True)
            ready(address)
            while not stop.is_set() and store.failure is None:
                await process.sleep_until(stop, _LOOK_SECONDS)
            server.set_serving(serving=store.failure is None)
            ports.draining.set()
            arrivals.close()
            await server.drain()
            if store.failure is not None:  # a new start rebuilds what this one could not write
                raise StoreFailed(store.problem) from store.failure
        finally:
            arrivals.close()
            await asyncio.to_thread(store.close)


if __name__ == "__main__":
    process.leave(main())
