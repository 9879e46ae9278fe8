"""grpc.health.v1: the health of each service, and watches that do not hold up a drain.

A watch ends with the drain: left open, it would take all of the grace. A watcher that does not read
delays neither a change of the state nor the drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from grpc_health.v1 import health_pb2

from services.rpc.servicer import Context, Draining
from services.rpc.status import LimitExceeded, ServiceNotFound

SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
WATCH_RETRY_MS: Final = 1_000
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """The health of the services named, NOT_SERVING at first; used on the event loop."""

    def __init__(self, names: Sequence[str], watches_max: int) -> None:
        """Anybody may watch: more watches at once than ``watches_max`` are refused."""
        self._watches_max = watches_max
        self._watches = 0
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

    async def check(
        self, request: health_pb2.HealthCheckRequest, _context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Return the health now."""
        if request.service not in self._names:
            raise ServiceNotFound(request.service)
        return health_pb2.HealthCheckResponse(status=self._state)

    async def list(
        self, _request: health_pb2.HealthListRequest, _context: Context
    ) -> health_pb2.HealthListResponse:
        """Return the health of every service now."""
        now = health_pb2.HealthCheckResponse(status=self._state)
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(self._names, now))

    async def watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        """Report the health now and after each change, until the service stops. Raises LimitExceeded."""
        if self._watches >= self._watches_max:
            raise LimitExceeded(
                f"{self._watches_max} watches of the health of this port are open",
                retry_delay_ms=WATCH_RETRY_MS,
            )
        self._watches += 1
        try:
            await self._report(request, context)
        finally:
            self._watches -= 1

    async def _report(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        reported = None
        while True:
            changed = self._changed
            state = self._state if request.service in self._names else _UNKNOWN
            if state != reported:
                answer = health_pb2.HealthCheckResponse(status=state)
                await context.write(answer.SerializeToString())
                reported = state
            if self._ended:
                raise Draining
            await changed.wait()
