"""Dead letters: how many there are, and sending them again."""

from __future__ import annotations

from typing import Final

from penstock._async.groups import AsyncGroups
from penstock._async.leases import AsyncLeaseCalls
from penstock._async.offsets import AsyncOffsets
from penstock._async.topics import AsyncTopics
from penstock.calls import produce
from penstock.calls.dead_letters import (
    copy_of,
    dead_letter_topic,
    group_of,
    is_dead_letter_topic,
    origin_topic,
)
from penstock.errors import GroupExists, InvalidArgument
from penstock.group_values import DeadLetterCount
from penstock.record import Record
from penstock.values import Stored

RESENDER: Final = "penstock-dlq-resend"
"""The group whose progress in a dead letter queue says what has been sent again."""
_RETRIES: Final = 1_000_000  # the most there is: what is given up would count as sent
_LEASE_MS: Final = 60_000
_BATCH_MESSAGES: Final = 256


class AsyncDeadLetters(AsyncTopics, AsyncGroups, AsyncOffsets, AsyncLeaseCalls):
    """Dead letters over a connection."""

    async def dead_letter_counts(self, *, timeout_s: float | None = None) -> list[DeadLetterCount]:
        """Return the groups that have dead letters, by name."""
        topics = [
            each.name
            for each in await self.topics(timeout_s=timeout_s)
            if is_dead_letter_topic(each.name)
        ]
        if not topics:
            return []
        kept = dict.fromkeys(sorted(topics), 0)
        left = dict(kept)
        resent = {
            (each.topic, each.queue_id): each.queue_offset
            for each in await self.offsets(RESENDER, timeout_s=timeout_s)
        }
        for queue in await self.stored_queues(topics, timeout_s=timeout_s):
            begin, end = queue.min_offset, queue.max_offset
            at = resent.get((queue.topic, queue.queue_id), begin)
            kept[queue.topic] += end - begin
            left[queue.topic] += end - max(begin, at)
        return [
            DeadLetterCount(group=group_of(topic), messages=kept[topic], to_resend=left[topic])
            for topic in kept
        ]

    async def resend_dead_letters(
        self, group: str, *, topic: str = "", most: int = 0, again: bool = False
    ) -> int:
        """Send a group's dead letters again, each once, the oldest first; return how many were.

        They are new messages of the topics that they come from, or of ``topic``, with their keys, tag, properties
        and unique keys. ``most`` bounds their number, 0 does not; with ``again`` also those are sent that were
        before. After an error the next call goes on behind the last that was stored. Raises TopicNotFound for a
        group without dead letters, InvalidArgument for one that does not say where it comes from.
        """
        dead = dead_letter_topic(group)
        await self.describe_topic(dead)
        try:
            await self.create_group(RESENDER, retry_max_times=_RETRIES)
        except GroupExists:
            await self.update_group(RESENDER, retry_max_times=_RETRIES)
        if again:
            await self.reset_group(RESENDER, dead, "earliest")
        sent = 0
        while not most or sent < most:
            room = min(_BATCH_MESSAGES, most - sent) if most else _BATCH_MESSAGES
            resent = await self._resend_some(dead, to=topic, most=room)
            if not resent:
                break
            sent += resent
        return sent

    async def resend(
        self, record: Record, topic: str = "", *, timeout_s: float | None = None
    ) -> Stored:
        """Store a message again, in the topic that it was sent to first or in another; return where.

        Raises InvalidArgument for a dead letter that does not say where it comes from, where no topic is given.
        """
        copy = copy_of(record, topic or origin_topic(record))
        call = produce.messages([copy], bytes_max=self.request_bytes_max, token="")
        stored = await self.run(call, timeout_s=timeout_s)
        return stored[0]

    async def _resend_some(self, dead: str, *, to: str, most: int) -> int:
        """Lease dead letters, store them again, then acknowledge them; return how many.

        What is not stored is given back, for the next call.
        """
        received = await self.receive(dead, group=RESENDER, max_messages=most, lease_ms=_LEASE_MS)
        while received.damaged and not received.records:  # those were passed over
            received = await self.receive(
                dead, group=RESENDER, max_messages=most, lease_ms=_LEASE_MS
            )
        if not received.records:
            return 0
        stored = 0
        try:
            copies = []
            problem: InvalidArgument | None = None
            for record in received.records:
                try:
                    copies.append(copy_of(record, to or origin_topic(record)))
                except InvalidArgument as error:
                    problem = error
                    break
            if copies:
                await self.run(produce.messages(copies, bytes_max=self.request_bytes_max, token=""))
            stored = len(copies)
            if problem is not None:
                raise problem
        finally:
            end = stored * received.handle_width
            if stored:
                await self.acknowledge(received, received.receipt_handles[:end])
            if stored < len(received.records):
                await self.change_leases(received, 0, received.receipt_handles[end:])
        return stored
