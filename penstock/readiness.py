"""Waiting for a service to serve: its own health is asked until it reports SERVING."""

from __future__ import annotations

from typing import Any, Final

import grpc

from penstock.addresses import Service
from penstock.calls import status
from penstock.errors import RpcError, Unavailable
from penstock.proxies import Way
from storage.clock import Clock

POLL_S: Final = 0.05


class Readiness:
    """Asks one service's own health until it reports SERVING, or the time is over."""

    def __init__(
        self, service: Service, address: str, way: Way, *, deadline_s: float, clock: Clock
    ) -> None:
        self.call = status.health(service)
        self._service = service
        self._address = address
        self._way = way
        self._deadline_s = deadline_s
        self._clock = clock
        self._left_s = 0.0
        self._problem = "never answered"

    def timeout_s(self) -> float:
        """Return how long the look that begins now may take."""
        self._left_s = self._deadline_s - self._clock.monotonic()
        return max(0.01, min(self._left_s, 1))

    def is_given(self, answer: Any) -> bool:
        """Whether an answer reports SERVING."""
        self._problem = "answers, but is not serving"
        return self.call.interpret(answer)

    def failed(self, error: RpcError) -> None:
        """Keep why a look got no answer; one that was cut off gives no reason."""
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            self._problem = error.details() or str(error.code())

    def pause_s(self) -> float:
        """Return how long to wait before the next look. Raises Unavailable when time was over."""
        if self._left_s <= 0:
            raise Unavailable(
                f"the {self._service} at {self._address} is not ready{self._way.proxy}:"
                f" {self._problem}{self._way.advice(self._problem)}"
            )
        return POLL_S
