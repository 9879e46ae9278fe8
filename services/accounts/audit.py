"""The audit log: changes of accounts, and calls that were refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog

LOGGER: Final = "penstock.audit"
_SAME_S: Final = 10.0  # of denials that are alike one is logged in this time
_KINDS_MAX: Final = 1_000  # of denials that are told apart


class AuditLog:
    """Writes events to a logger of its own. Refusals that are alike are counted, not repeated."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log: Any = structlog.stdlib.get_logger(LOGGER)
        self._monotonic = monotonic
        self._denied: dict[
            tuple[str, ...], tuple[float, int]
        ] = {}  # when logged, and how often since
        self.denied_count = 0

    def changed(self, what: str, *, by: str, **about: Any) -> None:
        """Log a change of accounts."""
        self._log.info("account changed", change=what, by=by, **about)

    def denied(self, *, user: str, address: str, method: str, problem: str) -> None:
        """Log a call that was denied, with how many like it came since the last one."""
        self.denied_count += 1
        self._repeated("denied", user, address, method, problem)

    def limited(self, *, address: str, method: str, problem: str) -> None:
        """Log a call beyond a limit in the same way; the problem names whose."""
        self._repeated("limited", "", address, method, problem)

    def _repeated(self, event: str, user: str, address: str, method: str, problem: str) -> None:
        kind, now = (event, user, address, method, problem), self._monotonic()
        logged_at, count = self._denied.get(kind, (-_SAME_S, 0))
        if now - logged_at < _SAME_S:
            self._denied[kind] = logged_at, count + 1
            return
        if len(self._denied) >= _KINDS_MAX:
            self._denied.clear()
        self._denied[kind] = now, 0
        self._log.warning(
            event,
            user=user,
            address=address,
            method=method,
            problem=problem,
            repeats=count,
        )
