"""Runs the reader: settings, store, servicers, its port and the gateway's; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.v1 import groups_pb2, leases_pb2, reader_pb2, traffic_pb2
from services import process
from services.accounts.opening import gateway_interceptors, read_accounts
from services.arrivals import Arrivals, PageSteps
from services.config.settings import ReaderSettings
from services.gateway.clients import LIST_CLIENTS
from services.gateway.messaging import Messaging, Upstreams
from services.ports import ServicePorts
from services.reader.budget import Budget
from services.reader.catch_up import CatchUp
from services.reader.lease_servicer import LeaseServicer
from services.reader.metrics import GroupLags, ReaderCollector
from services.reader.pulls import Pulls
from services.reader.queue_changes import QueueChanges
from services.reader.read_threads import ReadThreads
from services.reader.servicer import ReaderServicer
from services.reader.traffic import Traffic
from services.reader.traffic_servicer import SentTrafficServicer
from services.rpc.in_process import InProcessService
from services.rpc.ports import check_free
from services.rpc.server import Contract, RpcServer
from services.upstream import ServiceAddress
from storage.checkpoint.positions import Role
from storage.reader import StoreReader

SERVICE: Final = "reader"
_THREADS: Final = 4
_END_SECONDS: Final = 1.0  # for reads to see that nobody waits for them any more


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    return process.run(SERVICE, ReaderSettings, argv, serve)


async def serve(
    settings: ReaderSettings,
    stop: asyncio.Event,
    ready: process.Ready,
) -> None:
    """Wait for the store, serve it until ``stop`` is set, drain, close it.

    ``ready`` is called with the address of its port and that of the gateway's, if it has one.
    """
    if settings.gateway_listen:
        check_free(settings.gateway_listen)
    with ServicePorts(SERVICE, settings) as ports:
        if not await process.wait_for_store(
            settings.store, stop, timeout_seconds=settings.store_wait_seconds
        ):
            return
        accounts, authentication = read_accounts(settings)
        writer = ServiceAddress(settings.writer_address, settings.tls_of_calls, accounts.metadata)
        store = await asyncio.to_thread(StoreReader.open, settings.store)
        reads, looks = ReadThreads(_THREADS), ReadThreads(1)
        draining = ports.draining
        arrivals = Arrivals(
            PageSteps(lambda: store.positions, Role.WRITER, store.refresh), QueueChanges(store)
        )
        index_arrivals = Arrivals(PageSteps(lambda: store.positions, Role.INDEXER))
        leasing: LeaseServicer | None = None
        messaging: list[Messaging] = []
        try:
            catch_up = CatchUp(store, arrivals, index_arrivals, draining)
            budget, traffic = Budget(settings.stream_bytes_max), Traffic()
            leasing = LeaseServicer(
                store, settings, writer, arrivals, catch_up, reads, draining, traffic
            )
            lags = GroupLags(store, leasing, looks)
            ports.metrics.add(
                ReaderCollector(store, catch_up, leasing, traffic, arrivals, budget, lags)
            )
            servicer = ReaderServicer(
                store,
                Pulls(store, arrivals, catch_up, reads, draining, budget, traffic),
                catch_up,
                leasing.leases,
                traffic,
                pull_bytes_max=settings.pull_bytes_max,
                wait_ms_max=settings.wait_ms_max,
            )
            contracts = [
                Contract(reader_pb2.DESCRIPTOR.services_by_name["Reader"], servicer),
                Contract(leases_pb2.DESCRIPTOR.services_by_name["Leases"], leasing),
                Contract(groups_pb2.DESCRIPTOR.services_by_name["Groups"], leasing.groups),
                Contract(
                    traffic_pb2.DESCRIPTOR.services_by_name["Traffic"],
                    SentTrafficServicer(traffic, lags),
                ),
                authentication,
                ports.settings_contract,
            ]
            if settings.splits_routes:
                messaging.append(Messaging(settings, _upstreams(writer, contracts), draining))
                contracts += messaging[0].contracts
            count = 2 if settings.gateway_listen else 1
            servers: list[tuple[RpcServer, str]] = []
            if settings.gateway_listen:
                of_gateway = settings.of_gateway()
                gateway = Messaging(of_gateway, _upstreams(writer, contracts), draining)
                messaging.append(gateway)
                gateway_server = ports.server(
                    gateway.contracts,
                    gateway_interceptors(settings),
                    settings=of_gateway,
                    ports=count,
                )
                servers.append((gateway_server, of_gateway.listen))
                if not settings.splits_routes:  # else its own port lists the clients already
                    contracts = [*contracts, gateway.clients]
            if messaging:
                ports.metrics.add(messaging[0].metrics)
            server = ports.server(contracts, accounts.interceptors, ports=count)
            servers.insert(0, (server, settings.listen))
            addresses = [await each.start(listen) for each, listen in servers]
            for each, _ in reversed(servers):
                each.set_serving(serving=True)
            ready(*addresses)
            await stop.wait()
            draining.set()
            arrivals.close()
            index_arrivals.close()
            leasing.end_waits()
            await asyncio.gather(*(each.drain() for each, _ in servers))
        finally:
            for serving in messaging:
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
    lists_clients = here if here.serves(LIST_CLIENTS) else None
    return Upstreams.to_writer(at_writer, here, here, lists_clients)


if __name__ == "__main__":
    process.leave(main())
