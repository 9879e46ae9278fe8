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
from services.rpc.ports import check_free
from services.upstream import Endpoint, Upstream, WaitingCalls

SERVICE: Final = "gateway"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    settings = load(GatewaySettings, argv, prog=f"penstock {SERVICE}")
    return process.run(SERVICE, settings, lambda stop: serve(settings, stop))


def _announce(address: str) -> None:
    process.announce(SERVICE, address)


async def serve(
    settings: GatewaySettings,
    stop: asyncio.Event,
    ready: Callable[[str], None] = _announce,
) -> None:
    """Serve RocketMQ's clients until ``stop`` is set, drain. ``ready`` is called with the address."""
    check_free(settings.listen)
    port = GatewayPort(settings, _upstreams(settings), asyncio.Event(), ports=1)
    try:
        ready(await port.start())
        await stop.wait()
        await port.drain()
    finally:
        await port.close()


def _upstreams(settings: GatewaySettings) -> Upstreams:
    """Return the writer and the reader, over channels."""
    writing = Endpoint(settings.writer_address, settings.tls_of_calls)
    reading = Endpoint(settings.reader_address, settings.tls_of_calls)
    writer, halves = Upstream(writing), Upstream(writing)
    reader = Upstream(reading)
    return Upstreams(
        writer=writer,
        batches=BatchStream(writing),
        halves=HalfBatches(halves, halves.renew),
        reader=StreamedAcknowledging(reader, Upstream(reading)),
        waiting=WaitingCalls(reading),
        others_with_clients=(writer, reader) if settings.splits_routes else (),
    )


if __name__ == "__main__":
    process.leave(main())
