"""Runs the reader: settings, store, servicers, its port and the gateway's; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.v1 import groups_pb2, leases_pb2, reader_pb2, traffic_pb2
from services import process
from services.accounts.opening import gateway_interceptors, read_accounts
from services.accounts.page_guard import page_guard
from services.arrivals import Arrivals, PageSteps
from services.config.flags import load
from services.config.settings import ReaderSettings
from services.gateway.clients import LIST_CLIENTS
from services.gateway.messaging import Messaging, Upstreams
from services.gateway.port import GatewayPort
from services.gateway.sends.batch_stream import BatchStream, HalfBatches
from services.metrics.service import ServiceMetrics
from services.reader.budget import Budget
from services.reader.catch_up import CatchUp
from services.reader.leasing import Leasing
from services.reader.metrics import GroupLags, ReaderCollector
from services.reader.pulls import Pulls
from services.reader.queue_changes import QueueChanges
from services.reader.read_threads import ReadThreads
from services.reader.servicer import ReaderServicer
from services.reader.traffic import Traffic
from services.reader.traffic_servicer import SentTrafficServicer
from services.rpc.calls import Interceptor
from services.rpc.in_process import InProcessService
from services.rpc.ports import check_free
from services.rpc.running_settings import RunningSettings
from services.rpc.server import Contract, RpcServer
from services.settings_servicer import settings_contract
from services.traces import open_traces
from services.upstream import ServiceAddress, Upstream
from storage.checkpoint.positions import Role
from storage.reader import StoreReader

SERVICE: Final = "reader"
GATEWAY: Final = "gateway"
_THREADS: Final = 4
_END_SECONDS: Final = 1.0  # for reads to see that nobody waits for them any more


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    settings = load(ReaderSettings, argv, prog=f"penstock {SERVICE}")
    return process.run(SERVICE, settings, lambda stop: serve(settings, stop))


def _announce(address: str, gateway_address: str = "") -> None:
    process.announce(SERVICE, address)
    if gateway_address:
        process.announce(GATEWAY, gateway_address)


async def serve(
    settings: ReaderSettings,
    stop: asyncio.Event,
    ready: Callable[..., None] = _announce,
) -> None:
    """Wait for the store, serve it until ``stop`` is set, drain, close it.

    ``ready`` is called with the address of its port and that of the gateway's, if it has one.
    """
    if settings.gateway_listen:
        check_free(settings.gateway_listen)
    with (
        open_traces(SERVICE, settings) as traces,
        ServiceMetrics(SERVICE, settings, page_guard(settings)) as metrics,
    ):
        await _serve(settings, stop, ready, metrics, traces)


async def _serve(
    settings: ReaderSettings,
    stop: asyncio.Event,
    ready: Callable[..., None],
    metrics: ServiceMetrics,
    traces: Sequence[Interceptor],
) -> None:
    if not await process.wait_for_store(
        settings.store, stop, timeout_seconds=settings.store_wait_seconds
    ):
        return
    accounts, authentication = read_accounts(settings)
    writer = ServiceAddress(settings.writer_address, settings.tls_of_calls, accounts.metadata)
    store = await asyncio.to_thread(StoreReader.open, settings.store)
    reads, looks = ReadThreads(_THREADS), ReadThreads(1)
    draining = asyncio.Event()
    arrivals = Arrivals(
        PageSteps(lambda: store.positions, Role.WRITER, store.refresh), QueueChanges(store)
    )
    index_arrivals = Arrivals(PageSteps(lambda: store.positions, Role.INDEXER))
    leasing: Leasing | None = None
    messaging: Messaging | None = None
    gateway: GatewayPort | None = None
    try:
        catch_up = CatchUp(store, arrivals, index_arrivals, draining)
        budget, traffic = Budget(settings.stream_bytes_max), Traffic()
        leasing = Leasing(store, settings, writer, arrivals, catch_up, reads, draining, traffic)
        lags = GroupLags(store, leasing)
        metrics.add(
            ReaderCollector(store, catch_up, leasing, traffic, arrivals, budget, lags, looks)
        )
        servicer = ReaderServicer(
            store,
            Pulls(
                store,
                arrivals,
                catch_up,
                reads,
                draining,
                budget,
                traffic,
            ),
            catch_up,
            leasing.leases,
            traffic,
            pull_bytes_max=settings.pull_bytes_max,
            wait_ms_max=settings.wait_ms_max,
        )
        running = RunningSettings(settings)
        contracts = [
            Contract(reader_pb2.DESCRIPTOR.services_by_name["Reader"], servicer),
            Contract(leases_pb2.DESCRIPTOR.services_by_name["Leases"], leasing.servicer),
            Contract(groups_pb2.DESCRIPTOR.services_by_name["Groups"], leasing.groups),
            Contract(
                traffic_pb2.DESCRIPTOR.services_by_name["Traffic"],
                SentTrafficServicer(traffic, lags, looks),
            ),
            authentication,
            settings_contract(running),
        ]
        if settings.splits_routes:
            messaging = Messaging(settings, _upstreams(writer, contracts), draining)
            contracts += messaging.contracts
            metrics.add(messaging.metrics)
        ports = 2 if settings.gateway_listen else 1
        if settings.gateway_listen:
            upstreams = _upstreams(writer, contracts)
            gateway = GatewayPort(
                settings.of_gateway(),
                upstreams,
                draining,
                ports=ports,
                interceptors=(*gateway_interceptors(settings), *traces),
                counts=metrics.counts,
                running=running,
            )
            if messaging is None:  # else its own port lists them already
                contracts = [*contracts, gateway.clients]
                metrics.add(gateway.metrics)
        server = RpcServer(
            contracts,
            settings,
            draining,
            ports=ports,
            interceptors=(*accounts.interceptors, *traces),
            counts=metrics.counts,
            running=running,
        )
        address = await server.start(settings.listen)
        addresses = [address] if gateway is None else [address, await gateway.start()]
        server.set_serving(serving=True)
        ready(*addresses)
        await stop.wait()
        draining.set()
        arrivals.close()
        index_arrivals.close()
        leasing.end_waits()
        await asyncio.gather(server.drain(), *([gateway.drain()] if gateway is not None else ()))
    finally:
        for serving in (gateway, messaging):
            if serving is not None:
                await serving.close()
        store.end()
        for threads in (reads, looks):
            await asyncio.to_thread(threads.end, _END_SECONDS)
        if leasing is not None:
            await leasing.close()
        arrivals.close()
        index_arrivals.close()
        store.close()


def _upstreams(at_writer: ServiceAddress, contracts: Sequence[Contract]) -> Upstreams:
    """Return the writer over channels, and this process: RocketMQ's clients receive and acknowledge without a
    hop.

    Where it serves such clients on its own port (``contracts``), they are listed with those of the gateway's.
    """
    here = InProcessService(contracts)
    writer, halves = Upstream(at_writer), Upstream(at_writer)
    return Upstreams(
        writer=writer,
        batches=BatchStream(at_writer),
        halves=HalfBatches(halves, halves.renew),
        reader=here,
        waiting=here,
        others_with_clients=(writer, here) if here.serves(LIST_CLIENTS) else (),
    )


if __name__ == "__main__":
    process.leave(main())
