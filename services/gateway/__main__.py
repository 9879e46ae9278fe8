"""Runs the gateway as a process of its own: settings, channels, port; stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.credentials import Metadata, given_credentials
from services import process
from services.accounts.opening import remote_accounts, without_accounts
from services.config.settings import GatewaySettings
from services.gateway.messaging import Messaging, Upstreams
from services.ports import ServicePorts
from services.rpc.ports import check_free
from services.upstream import ServiceAddress, Upstream, WaitingCalls
from storage.errors import BrokenAccounts

SERVICE: Final = "gateway"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal to stop; return the exit code."""
    return process.run(SERVICE, GatewaySettings, argv, serve)


async def serve(
    settings: GatewaySettings,
    stop: asyncio.Event,
    ready: process.Ready,
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
    with ServicePorts(SERVICE, settings) as ports:
        messaging = Messaging(settings, _upstreams(settings, writing, reading), ports.draining)
        ports.metrics.add(messaging.metrics)
        server = ports.server(messaging.contracts, accounts.interceptors)
        try:
            address = await server.start(settings.listen)
            server.set_serving(serving=True)
            ready(address)
            await stop.wait()
            await server.drain()
        finally:
            await messaging.close()
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
    reader = Upstream(reading)
    return Upstreams.to_writer(
        writing,
        reader,
        WaitingCalls(reading),
        reader if settings.splits_routes else None,
    )


if __name__ == "__main__":
    process.leave(main())
