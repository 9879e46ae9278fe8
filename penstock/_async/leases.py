"""Leases by hand, batch by batch; a subscription does it for you."""

from __future__ import annotations

from penstock._async.connection import AsyncConnection
from penstock.calls import leases
from penstock.group_values import MessageTrack
from penstock.leased import Received, RefusedHandle


class AsyncLeaseCalls(AsyncConnection):
    """Leases over a connection."""

    async def receive(
        self,
        topic: str,
        *,
        group: str,
        max_messages: int = 32,
        max_bytes: int = 0,
        lease_ms: int = 30_000,
        wait_ms: int = 0,
        tag: str = "",
        sql: str = "",
        timeout_s: float | None = None,
    ) -> Received:
        """Lease messages of a topic, waiting up to ``wait_ms`` for the first one.

        A message that is not acknowledged within ``lease_ms`` is delivered again. Give ``tag``, an
        expression, or ``sql``, an SQL92 filter over properties, or neither.
        """
        call = leases.receive(
            topic,
            group=group,
            max_messages=max_messages,
            max_bytes=max_bytes,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            tag=tag,
            sql=sql,
        )
        return await self.run(call, timeout_s=timeout_s)

    async def acknowledge(
        self, received: Received, handles: bytes | None = None, *, timeout_s: float | None = None
    ) -> list[RefusedHandle]:
        """Acknowledge the received messages, or those of ``handles``: they are done.

        Returns the handles that were refused, such as those of ended leases.
        """
        handles = received.receipt_handles if handles is None else handles
        call = leases.acknowledge(received.group, received.topic, handles)
        return await self.run(call, timeout_s=timeout_s)

    async def change_leases(
        self,
        received: Received,
        duration_ms: int | None = None,
        handles: bytes | None = None,
        *,
        timeout_s: float | None = None,
    ) -> list[RefusedHandle]:
        """End leases ``duration_ms`` from now: later for more time, sooner to give messages back.

        Without it messages are given back by the group's backoff. Returns the handles that were refused.
        """
        handles = received.receipt_handles if handles is None else handles
        call = leases.change(received.group, received.topic, handles, duration_ms)
        return await self.run(call, timeout_s=timeout_s)

    async def dead_letter(
        self, received: Received, handles: bytes | None = None, *, timeout_s: float | None = None
    ) -> list[RefusedHandle]:
        """Move messages to the group's dead letters, topic ``%DLQ%group``, and acknowledge them.

        Returns the handles that were refused.
        """
        handles = received.receipt_handles if handles is None else handles
        call = leases.dead_letter(received.group, received.topic, handles)
        return await self.run(call, timeout_s=timeout_s)

    async def track(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        commit_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> list[MessageTrack]:
        """Return what each consumer group that reads a queue did with one of its messages, by group.

        A record has all four under these names; with ``commit_offset`` no message of a former topic is taken for one of the
        topic that has its name now. Groups that the user may not see are left out, and so are those that never read the
        queue. Raises TopicNotFound, or InvalidArgument if the queue has no such message.
        """
        call = leases.track(topic, queue_id, queue_offset, commit_offset)
        return await self.run(call, timeout_s=timeout_s)
