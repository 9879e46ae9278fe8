"""Runs the gateway: settings, channels, servicer, servers; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from services import process
from services.flags import load
from services.gateway.tls import tls_credentials
from services.messaging.acknowledging import StreamedAcknowledging
from services.messaging.messaging import Messaging, Upstreams
from services.messaging.sends.batch_stream import BatchStream, HalfBatches
from services.rpc.listening import check_free
from services.rpc.server import RpcServer
from services.settings import GatewaySettings
from services.upstream import Upstream, WaitingCalls

SERVICE: Final = "gateway"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    settings = load(GatewaySettings, argv, prog=f"penstock {SERVICE}")
    return process.run(SERVICE, settings, lambda stop: serve(settings, stop))


def _announce(address: str) -> None:
    process.announce(SERVICE, address)


async def serve(
    settings: GatewaySettings, stop: asyncio.Event, ready: Callable[[str], None] = _announce
) -> None:
    """Serve RocketMQ's clients until ``stop`` is set, drain."""
    check_free(settings.listen)
    draining = asyncio.Event()
    writer, halves = Upstream(settings.writer_address), Upstream(settings.writer_address)
    reader = Upstream(settings.reader_address)
    upstreams = Upstreams(
        writer=writer,
        batches=BatchStream(settings.writer_address),
        halves=HalfBatches(halves, halves.renew),
        reader=StreamedAcknowledging(reader, Upstream(settings.reader_address)),
        waiting=WaitingCalls(settings.reader_address),
        others_with_clients=(writer, reader) if settings.splits_routes else (),
    )
    messaging = Messaging(settings, upstreams, draining)
    try:
        server = RpcServer(messaging.contracts, settings, draining)
        if settings.tls_listen:
            server.add_tls(settings.tls_listen, tls_credentials(settings))
        address = await server.start(settings.listen)
        server.set_serving(serving=True)
        ready(address)
        await stop.wait()
        await server.drain()
    finally:
        await messaging.close()


if __name__ == "__main__":
    process.leave(main())
