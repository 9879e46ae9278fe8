"""What the gateway knows of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import grpc

from penstock.v1 import groups_pb2
from services.gateway.answer_cache import ANSWER_SECONDS, AnswerCache
from services.gateway.v2 import definition_pb2 as v2
from storage.format.backoff import DEFAULT_STEPS_MS
from storage.tables.groups import RETRY_MAX_TIMES

DESCRIBE: Final = "/penstock.v1.Groups/DescribeGroup"


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


class GroupCache(AnswerCache[KnownGroup]):
    """Groups by name, as the reader describes them; the defaults of one that is not made yet."""

    async def _asked(self, name: str) -> KnownGroup:
        request = groups_pb2.DescribeGroupRequest(group=name)
        try:
            answer = await self._service.call(DESCRIBE, request, timeout_s=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return KnownGroup()
            raise
        return KnownGroup.of(groups_pb2.DescribeGroupResponse.FromString(answer).settings)
