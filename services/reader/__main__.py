"""Runs the reader: settings, store, servicer, server; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.v1 import reader_pb2
from services import process
from services.arrivals import Arrivals
from services.reader.budget import Budget
from services.reader.catching_up import CatchUp
from services.reader.pulls import Pulls
from services.reader.servicer import ReaderServicer
from services.reader.source import Source
from services.rpc.server import Contract, RpcServer
from services.settings import ReaderSettings, load
from services.waiting import wait_for_store
from storage.reader import StoreReader

SERVICE: Final = "reader"
_THREADS: Final = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    settings = load(ReaderSettings, argv, prog=f"penstock {SERVICE}")
    return process.run(SERVICE, settings, lambda stop: serve(settings, stop))


def _announce(address: str) -> None:
    process.announce(SERVICE, address)


async def serve(
    settings: ReaderSettings, stop: asyncio.Event, ready: Callable[[str], None] = _announce
) -> None:
    """Wait for the store, serve it until ``stop`` is set, drain, close it."""
    if not await wait_for_store(settings.store, stop, timeout_seconds=settings.store_wait_seconds):
        return
    source = Source(await asyncio.to_thread(StoreReader.open, settings.store))
    executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="reads")
    draining = asyncio.Event()
    arrivals, index_arrivals = Arrivals(source), Arrivals(source.index_progress)
    try:
        catch_up = CatchUp(source, arrivals, index_arrivals, draining)
        servicer = ReaderServicer(
            source,
            Pulls(
                source.reader,
                arrivals,
                catch_up,
                executor,
                draining,
                Budget(settings.stream_bytes_max),
            ),
            catch_up,
            pull_bytes_max=settings.pull_bytes_max,
            wait_ms_max=settings.wait_ms_max,
        )
        service = reader_pb2.DESCRIPTOR.services_by_name["Reader"]
        server = RpcServer([Contract(service, servicer)], settings, draining)
        address = await server.start(settings.listen)
        server.set_serving(serving=True)
        ready(address)
        await stop.wait()
        draining.set()
        arrivals.close()
        index_arrivals.close()
        await server.drain()
    finally:
        arrivals.close()
        index_arrivals.close()
        executor.shutdown(wait=True, cancel_futures=True)
        source.close()


if __name__ == "__main__":
    process.leave(main())
