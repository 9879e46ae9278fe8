"""Calls of a service that may be starting again: they are made again while there is time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import grpc

from services.gateway.messages.statuses import refusal_of

AGAIN_SECONDS: Final = 0.05


async def answered_until(
    until: float, call: Callable[[float], Awaitable[bytes]]
) -> tuple[bytes, bool]:
    """Return the answer to a call, and whether it was made before without one. Raises CallRefused.

    ``call`` is given the seconds that are left; ``until`` is of the loop's clock.
    """
    clock = asyncio.get_running_loop().time
    is_repeated = False
    while True:
        left = until - clock()
        try:
            return await call(left), is_repeated
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or left < AGAIN_SECONDS * 2:
                raise refusal_of(error) from None
        await asyncio.sleep(AGAIN_SECONDS)
        is_repeated = True
