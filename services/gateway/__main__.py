"""Runs the gateway as a process of its own: settings, channels, port; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from services import process
from services.config.flags import load
from services.config.settings import GatewaySettings
from services.gateway.acknowledgements import StreamedAcknowledging
from services.gateway.messaging import Upstreams
from services.gateway.port import GatewayPort
from services.gateway.sends.batch_stream import BatchStream, HalfBatches
from services.metrics.service import ServiceMetrics
from services.rpc.ports import check_free
from services.upstream import Upstream, WaitingCalls

SERVICE: Final = "gateway"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    settings = load(GatewaySettings, argv, prog=f"penstock {SERVICE}")
    return process.run(SERVICE, settings, lambda stop: serve(settings, stop))


def _announce(*addresses: str) -> None:
    for address in addresses:
        process.announce(SERVICE, address)


async def serve(
    settings: GatewaySettings,
    stop: asyncio.Event,
    ready: Callable[..., None] = _announce,
) -> None:
    """Serve RocketMQ's clients until ``stop`` is set, drain. ``ready`` is called with the address of each port."""
    check_free(settings.listen)
    ports = 2 if settings.tls_listen else 1
    with ServiceMetrics(SERVICE, settings) as metrics:
        port = GatewayPort(
            settings, _upstreams(settings), asyncio.Event(), ports=ports, counts=metrics.counts
        )
        metrics.add(port.metrics)
        try:
            ready(*await port.start())
            await stop.wait()
            await port.drain()
        finally:
            await port.close()


def _upstreams(settings: GatewaySettings) -> Upstreams:
    """Return the writer and the reader, over channels."""
    writer, halves = Upstream(settings.writer_address), Upstream(settings.writer_address)
    reader = Upstream(settings.reader_address)
    return Upstreams(
        writer=writer,
        batches=BatchStream(settings.writer_address),
        halves=HalfBatches(halves, halves.renew),
        reader=StreamedAcknowledging(reader, Upstream(settings.reader_address)),
        waiting=WaitingCalls(settings.reader_address),
        others_with_clients=(writer, reader) if settings.splits_routes else (),
    )


if __name__ == "__main__":
    process.leave(main())
