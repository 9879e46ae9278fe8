"""Offsets of queues and of consumer groups."""

from __future__ import annotations

from penstock._async.connection import AsyncConnection
from penstock.calls import offsets
from penstock.calls.offsets import Boundary, Position
from penstock.values import GroupOffset, OffsetRange


class AsyncOffsets(AsyncConnection):
    """Offsets over a connection."""

    async def offset(
        self,
        topic: str,
        queue_id: int,
        position: Position = "latest",
        *,
        boundary: Boundary = "lower",
        timeout_s: float | None = None,
    ) -> OffsetRange:
        """Return the earliest or latest offset of a queue, or the one at a time.

        A time (Unix milliseconds or datetime) gives the first record stored at or after it, with
        ``boundary="upper"`` the last one stored at or before it.
        """
        call = offsets.find(topic, queue_id=queue_id, position=position, boundary=boundary)
        return await self.run(call, timeout_s=timeout_s)

    async def commit_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Record that a group consumed a queue up to, not including, ``offset``."""
        call = offsets.commit(group, topic, queue_id=queue_id, queue_offset=offset)
        await self.run(call, timeout_s=timeout_s)

    async def offsets(
        self, group: str, topic: str = "", *, timeout_s: float | None = None
    ) -> list[GroupOffset]:
        """Return how far a group came, in one topic or in all of its topics."""
        return await self.run(offsets.of_group(group, topic), timeout_s=timeout_s)

    async def groups(self, *, timeout_s: float | None = None) -> list[str]:
        """Return the names of all consumer groups."""
        return await self.run(offsets.groups(), timeout_s=timeout_s)
