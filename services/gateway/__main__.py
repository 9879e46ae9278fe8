"""Runs the gateway as a process of its own: settings, channels, port; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.credentials import Metadata, given_credentials
from services import process
from services.accounts.opening import remote_accounts, without_accounts
from services.accounts.page_guard import page_guard
from services.config.flags import load
from services.config.settings import GatewaySettings
from services.gateway.acknowledgements import StreamedAcknowledging
from services.gateway.messaging import Upstreams
from services.gateway.port import GatewayPort
from services.gateway.sends.batch_stream import BatchStream, HalfBatches
from services.metrics.service import ServiceMetrics
from services.rpc.ports import check_free
from services.traces import open_traces
from services.upstream import ServiceAddress, Upstream, WaitingCalls
from storage.errors import BrokenAccounts

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
    writing, reading = (
        ServiceAddress(address, settings.tls_of_calls, _own_metadata(settings))
        for address in (settings.writer_address, settings.reader_address)
    )
    accounts, remote = (
        remote_accounts(settings, reading)
        if settings.accounts
        else (without_accounts(settings), None)
    )
    with (
        open_traces(SERVICE, settings) as traces,
        ServiceMetrics(SERVICE, settings, page_guard(settings)) as metrics,
    ):
        port = GatewayPort(
            settings,
            _upstreams(settings, writing, reading),
            asyncio.Event(),
            ports=1,
            interceptors=(*accounts.interceptors, *traces),
            counts=metrics.counts,
        )
        metrics.add(port.metrics)
        try:
            ready(await port.start())
            await stop.wait()
            await port.drain()
        finally:
            await port.close()
            if remote is not None:
                await remote.close()


def _own_metadata(settings: GatewaySettings) -> Callable[[], Metadata]:
    """Return what its calls carry. Raises BrokenAccounts where accounts need it and the variables do not say it."""
    credentials = given_credentials()
    if credentials is None:
        if settings.accounts:
            raise BrokenAccounts(
                "--accounts needs PENSTOCK_ACCESS_KEY and PENSTOCK_SECRET_KEY of a user that penstock user create"
                " NAME --service made"
            )
        return tuple
    if not settings.accounts:
        raise BrokenAccounts(
            "PENSTOCK_ACCESS_KEY is set without --accounts: whoever calls the gateway would call as that user"
        )
    metadata = credentials.metadata()
    return lambda: metadata


def _upstreams(
    settings: GatewaySettings, writing: ServiceAddress, reading: ServiceAddress
) -> Upstreams:
    """Return the writer and the reader, over channels."""
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
