"""Calls within the limits of who makes them: a call beyond is refused, a stream is read and written slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from services.config.settings import ProcessSettings
from services.limits.meter import Meter
from services.limits.metered_call import MeteredCall
from services.rpc.calls import InterceptedCall, Proceed
from services.rpc.servicer import Context
from services.rpc.status import LimitExceeded
from storage.accounts.limits import LIMIT_NAMES, Limits
from storage.accounts.rules import User, UserKind

CONNECTIONS_KNOWN_MAX: Final = 10_000  # beyond, those are forgotten that take nothing
Report = Callable[[str, InterceptedCall, LimitExceeded], None]  # the user, "" without accounts


def set_limits(settings: ProcessSettings) -> Limits:
    """Return the limits that settings give to who has none of its own."""
    return Limits(**{name: getattr(settings, f"user_{name}") for name in LIMIT_NAMES})


def limits_connections(settings: ProcessSettings) -> bool:
    """Return whether a setting asks for limits where accounts are off."""
    return any(f"user_{name}" in settings.model_fields_set for name in LIMIT_NAMES)


class UserLimits:
    """The meters of users; used on the event loop."""

    def __init__(self, defaults: Limits, report: Report) -> None:
        self._defaults = defaults
        self._report = report
        self._meters: dict[str, tuple[User, Meter]] = {}

    def meter(self, user: User) -> Meter | None:
        """Return the meter of a user with its limits as they are now; None for services, which have none."""
        if user.kind is UserKind.SERVICE:
            return None
        known, meter = self._meters.get(user.name, (None, None))
        if meter is None:
            meter = Meter(f"user {user.name!r}", user.limits.over(self._defaults))
        elif known is not user:  # the rules have changed
            meter.limit(user.limits.over(self._defaults))
        else:
            return meter
        self._meters[user.name] = user, meter
        return meter

    async def within(self, user: User, call: InterceptedCall, proceed: Proceed) -> Any:
        """Make a call within the limits of a user. Raises LimitExceeded."""
        meter = self.meter(user)
        if meter is None:
            return await proceed(call)
        return await _within(meter, user.name, call, proceed, self._report)


class ConnectionLimits:
    """An interceptor where accounts are off: each connection has the same limits."""

    def __init__(self, limits: Limits, report: Report) -> None:
        self._limits = limits
        self._report = report
        self._meters: dict[str, Meter] = {}

    async def __call__(self, call: InterceptedCall, proceed: Proceed) -> Any:
        """Make a call. Raises LimitExceeded."""
        peer = call.context.peer()
        meter = self._meters.get(peer)
        if meter is None:
            if len(self._meters) >= CONNECTIONS_KNOWN_MAX:
                self._meters = {
                    name: each for name, each in self._meters.items() if not each.is_idle
                }
            meter = self._meters[peer] = Meter("a connection", self._limits)
        return await _within(meter, "", call, proceed, self._report)


async def _within(
    meter: Meter, user: str, call: InterceptedCall, proceed: Proceed, report: Report
) -> Any:
    """Count a call until it ends, with its answer; report and refuse one that is too many, in its turn."""
    peer, is_stream = call.context.peer(), call.method.is_stream
    try:
        meter.begin(call.request_bytes, peer)
    except LimitExceeded as error:
        report(user, call, error)
        with meter.refusal_wait_s() as wait_s:
            await asyncio.sleep(wait_s)
        raise
    if is_stream:
        call.context = cast("Context", MeteredCall(call.context, meter))
    answer_bytes = 0
    try:
        answer = await proceed(call)
        if answer is not None and not is_stream:
            answer_bytes = len(answer) if type(answer) is bytes else answer.ByteSize()
        return answer
    finally:
        meter.end(call.request_bytes, peer, answer_bytes)
