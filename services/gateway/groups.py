"""What the gateway knows of consumer groups: asked of the reader, kept for a moment."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import grpc

from penstock.v1 import groups_pb2
from services.gateway.messages.statuses import refusal_of
from services.gateway.v2 import definition_pb2 as v2
from services.upstream import CalledService
from storage.tables.backoff import DEFAULT_STEPS_MS
from storage.tables.groups import RETRY_MAX_TIMES

DESCRIBE: Final = "/penstock.v1.Groups/DescribeGroup"
FRESH_SECONDS: Final = 2.0
GROUPS_MAX: Final = 10_000
_ANSWER_SECONDS: Final = 2.0


def _default_backoff() -> groups_pb2.Backoff:
    customized = groups_pb2.CustomizedBackoff(next_ms=DEFAULT_STEPS_MS)
    return groups_pb2.Backoff(customized=customized)


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group as its consumers see it; the defaults are those of a group that is not made yet."""

    orderly: bool = False
    max_attempts: int = RETRY_MAX_TIMES + 1
    backoff: groups_pb2.Backoff = field(default_factory=_default_backoff)

    @classmethod
    def of(cls, settings: groups_pb2.GroupSettings) -> KnownGroup:
        """Return what consumers see of a group's settings."""
        retries = (
            settings.retry_max_times if settings.HasField("retry_max_times") else RETRY_MAX_TIMES
        )
        has_backoff = settings.backoff.WhichOneof("strategy") == "exponential" or bool(
            settings.backoff.customized.next_ms
        )
        return cls(
            settings.orderly,
            retries + 1,
            settings.backoff if has_backoff else _default_backoff(),
        )

    def fill_backoff(self, policy: v2.RetryPolicy) -> None:
        """Write the pauses into a policy."""
        if self.backoff.WhichOneof("strategy") == "exponential":
            exponential = self.backoff.exponential
            policy.exponential_backoff.initial.FromMilliseconds(exponential.initial_ms)
            policy.exponential_backoff.max.FromMilliseconds(exponential.max_ms)
            policy.exponential_backoff.multiplier = exponential.multiplier
            return
        for delay_ms in self.backoff.customized.next_ms:
            policy.customized_backoff.next.add().FromMilliseconds(delay_ms)


class GroupCache:
    """Groups by name; those asked for last stay, GROUPS_MAX of them."""

    def __init__(self, reader: CalledService) -> None:
        self._reader = reader
        self._known: OrderedDict[str, tuple[KnownGroup, float]] = OrderedDict()
        self._loop = asyncio.get_running_loop()

    async def find(self, name: str) -> KnownGroup:
        """Return a group, or the defaults of one that is not made yet. Raises CallRefused.

        While the reader does not answer, the group is what it was last.
        """
        known = self._known.get(name)
        if known is not None and self._loop.time() - known[1] <= FRESH_SECONDS:
            return known[0]
        request = groups_pb2.DescribeGroupRequest(group=name)
        try:
            answer = await self._reader.call(DESCRIBE, request, timeout_s=_ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            code = error.code()
            if code is grpc.StatusCode.NOT_FOUND:
                return self._keep(name, KnownGroup())
            is_away = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            if is_away and known is not None:
                return known[0]
            raise refusal_of(error) from None
        described = groups_pb2.DescribeGroupResponse.FromString(answer)
        return self._keep(name, KnownGroup.of(described.settings))

    def _keep(self, name: str, group: KnownGroup) -> KnownGroup:
        self._known[name] = group, self._loop.time()
        self._known.move_to_end(name)
        while len(self._known) > GROUPS_MAX:
            self._known.popitem(last=False)
        return group
