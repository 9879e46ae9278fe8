"""A writer whose store cannot be opened because its disk is full: it refuses, and opens it when there is
space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from google.protobuf.descriptor import ServiceDescriptor

from services import logs
from services.config.settings import WriterSettings
from services.process import sleep_until
from services.rpc.calls import Interceptor
from services.rpc.server import Contract, RpcServer
from storage.errors import StoreFull

TRY_AGAIN_S: Final = 1.0
T = TypeVar("T")


class FullDiskServicer:
    """Answers every method of every contract with the StoreFull that the store was not opened for."""

    def __init__(self, full: StoreFull) -> None:
        self.full = full  # of the last attempt

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def refuse(*_: object) -> NoReturn:
            raise StoreFull(str(self.full))

        return refuse


async def open_with_space(
    open_store: Callable[[], T],
    services: Sequence[ServiceDescriptor],
    settings: WriterSettings,
    stop: asyncio.Event,
    announce: Callable[[str], None],
    interceptors: Sequence[Interceptor] = (),
) -> tuple[T | None, str]:
    """Return what ``open_store`` returns, run in a thread, and where to listen; None once ``stop`` is set.

    While it raises StoreFull, all calls of ``services`` are refused with that, health is not serving, and it
    is tried again every TRY_AGAIN_S.
    """
    try:
        return await asyncio.to_thread(open_store), settings.listen
    except StoreFull as full:
        logs.get_logger().error("no space to open the store; trying again", problem=str(full))
        problem = full
    servicer = FullDiskServicer(problem)
    contracts = [Contract(service, servicer) for service in services]
    server = RpcServer(contracts, settings, asyncio.Event(), interceptors=interceptors)
    address = await server.start(settings.listen)
    announce(address)
    try:
        while not stop.is_set():
            await sleep_until(stop, TRY_AGAIN_S)
            try:
                return await asyncio.to_thread(open_store), address
            except StoreFull as full:
                servicer.full = full
    finally:
        await server.drain()
    return None, address
