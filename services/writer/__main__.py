"""Runs the writer: settings, store, servicer, server; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.v1 import (
    dead_letters_pb2,
    retention_pb2,
    timers_pb2,
    traffic_pb2,
    transactions_pb2,
    writer_pb2,
)
from services import process
from services.accounts.opening import own_accounts
from services.config.settings import WriterSettings
from services.gateway.messaging import Messaging, Upstreams
from services.gateway.sends.batch_stream import BatchCalls, HalfBatches
from services.ports import ServicePorts
from services.rpc.in_process import InProcessService
from services.rpc.ports import check_free
from services.rpc.server import Contract
from services.upstream import ServiceAddress, Upstream, WaitingCalls
from services.writer.acks import Acks
from services.writer.dead_letters import DeadLetterServicer
from services.writer.loop_dispatch import LoopDispatch
from services.writer.metrics import WriterCollector
from services.writer.retention import RetentionServicer
from services.writer.servicer import WriterServicer
from services.writer.timers import TimerServicer
from services.writer.traffic_servicer import StoredTrafficServicer
from services.writer.transactions import TransactionServicer
from storage.writer import StoreWriter

SERVICE: Final = "writer"
_SERVICES: Final = {
    name: contract.DESCRIPTOR.services_by_name[name]
    for name, contract in (
        ("Writer", writer_pb2),
        ("DeadLetters", dead_letters_pb2),
        ("Transactions", transactions_pb2),
        ("Timers", timers_pb2),
        ("Retention", retention_pb2),
        ("Traffic", traffic_pb2),
    )
}
_LOOK_SECONDS: Final = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    return process.run(SERVICE, WriterSettings, argv, serve)


async def serve(
    settings: WriterSettings,
    stop: asyncio.Event,
    ready: process.Ready,
) -> None:
    """Open the store, serve it until ``stop`` is set, drain, close it."""
    check_free(settings.listen)
    with ServicePorts(SERVICE, settings) as ports:
        accounts, accounts_contract = await asyncio.to_thread(own_accounts, settings)
        store = await asyncio.to_thread(
            StoreWriter.open, settings.store, settings.store_config(), waits_for_files=False
        )
        messaging: Messaging | None = None
        try:
            acks = Acks(store)
            LoopDispatch(store)
            servicer = WriterServicer(
                store, acks, ports.draining,
                stream_batches_max=settings.stream_batches_max, refused=ports.metrics.refused,
            )  # fmt: skip
            ports.metrics.add(WriterCollector(store, lambda: acks.waiting_count))
            contracts = [
                Contract(_SERVICES["Writer"], servicer),
                Contract(_SERVICES["DeadLetters"], DeadLetterServicer(store, acks)),
                Contract(
                    _SERVICES["Transactions"],
                    TransactionServicer(
                        store.transactions, store.transaction_checks, acks, ports.draining
                    ),
                ),
                Contract(_SERVICES["Timers"], TimerServicer(store.timers, acks)),
                Contract(_SERVICES["Retention"], RetentionServicer(store.retention)),
                Contract(_SERVICES["Traffic"], StoredTrafficServicer(store)),
                accounts_contract,
                ports.settings_contract,
            ]
            if settings.splits_routes:
                reader = ServiceAddress(
                    settings.reader_address, settings.tls_of_calls, accounts.metadata
                )
                messaging = _messaging(settings, reader, contracts, ports.draining)
                contracts += messaging.contracts
                ports.metrics.add(messaging.metrics)
            server = ports.server(contracts, accounts.interceptors)
            address = await server.start(settings.listen)
            server.set_serving(serving=store.writable)
            ready(address)
            while not stop.is_set():
                await process.sleep_until(stop, _LOOK_SECONDS)
                store.check_place()
                acks.wake()
                server.set_serving(serving=store.writable)
            await server.drain()
        finally:
            if messaging is not None:
                await messaging.close()
            await asyncio.to_thread(store.close)


def _messaging(
    settings: WriterSettings,
    reader: ServiceAddress,
    contracts: Sequence[Contract],
    draining: asyncio.Event,
) -> Messaging:
    """Return what serves RocketMQ's clients here: their sends are stored without another hop."""
    here = InProcessService(contracts)
    upstreams = Upstreams(
        writer=here,
        batches=BatchCalls(here),
        halves=HalfBatches(here),
        reader=Upstream(reader),
        waiting=WaitingCalls(reader),
    )
    return Messaging(settings, upstreams, draining)


if __name__ == "__main__":
    process.leave(main())
