"""grpc.health.v1: the health of each service, and watches that do not hold up a drain.

A watch ends with the drain: left open, it would take all of the grace. A watcher that does not read
delays neither a change of the state nor the drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

Context = grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the base has no types
    """The health of the services named, NOT_SERVING at first; used on the event loop."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._state = NOT_SERVING
        self._ended = False
        self._changed = asyncio.Event()

    def set(self, *, serving: bool) -> None:
        """Set the health and wake the watches."""
        self._state = SERVING if serving else NOT_SERVING
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def end(self) -> None:
        """Report NOT_SERVING from here on, and end every watch when it has reported it."""
        self._ended = True
        self.set(serving=False)

    async def Check(  # noqa: N802  the contract's name
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Return the health now."""
        if request.service not in self._names:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r} here"
            )
        return health_pb2.HealthCheckResponse(status=self._state)

    async def Watch(  # noqa: N802  the contract's name
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> None:
        """Report the health now and after each change, until the service stops."""
        reported = None
        while True:
            changed = self._changed
            state = self._state if request.service in self._names else _UNKNOWN
            if state != reported:
                await context.write(health_pb2.HealthCheckResponse(status=state))
                reported = state
            if self._ended:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the service is stopping")
            await changed.wait()
