"""The audit log: changes of accounts, and calls that were refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from services.logs import AUDIT_LOGGER
from services.rpc.calls import InterceptedCall
from services.rpc.peers import ip_of_peer
from services.rpc.status import LimitExceeded

LINES_PER_S: Final = 50  # of refusals; more are counted
_SAME_S: Final = 10.0  # of denials that are alike one is logged in this time
_KINDS_MAX: Final = 1_000  # of denials that are told apart


class AuditLog:
    """Writes events to a logger of its own. Refusals that are alike are counted, not repeated."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log: Any = structlog.stdlib.get_logger(AUDIT_LOGGER)
        self._monotonic = monotonic
        self._denied: dict[
            tuple[str, ...], tuple[float, int]
        ] = {}  # when logged, and how often since
        self._others = 0  # that no line has told of, and none of their kind will
        self._second, self._lines = 0, 0  # that were written in it

    def changed(self, what: str, *, by: str, **about: Any) -> None:
        """Log a change of accounts."""
        self._log.info("account changed", change=what, by=by, **about)

    def denied(self, *, user: str, address: str, method: str, problem: str) -> None:
        """Log a call that was denied, with how many like it came since the last one.

        The names that it asked for make no difference.
        """
        about = {"user": user, "address": address, "method": method}
        self._repeated("denied", "", problem=problem, **about)

    def limited(self, user: str, call: InterceptedCall, error: LimitExceeded) -> None:
        """Log a call beyond a limit in the same way."""
        problem, address = str(error), ip_of_peer(call.context.peer())
        method = f"{call.method.service}/{call.method.name}"
        self._repeated(
            "limited", problem, user=user, address=address, method=method, problem=problem
        )

    def _repeated(self, event: str, whose: str, *, problem: str, **about: str) -> None:
        kind, now = (event, whose, *about.values()), self._monotonic()
        logged_at, count = self._denied.get(kind, (-_SAME_S, 0))
        if now - logged_at < _SAME_S:
            self._denied[kind] = logged_at, count + 1
            return
        if int(now) != self._second:
            self._second, self._lines = int(now), 0
        if self._lines >= LINES_PER_S:
            self._others += 1
            return
        self._lines += 1
        if len(self._denied) >= _KINDS_MAX:
            self._others += sum(each for _, each in [*self._denied.values()])
            self._denied.clear()
            count = 0
        self._denied[kind] = now, 0
        others, self._others = self._others, 0
        self._log.warning(event, **about, problem=problem, repeats=count, others=others)
