"""Dead letters: how many there are, and sending them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.calls import groups, leases, offsets, produce, topics
from penstock.calls.call import Call, Plan
from penstock.calls.operation import operation
from penstock.errors import GroupExists, InvalidArgument
from penstock.record import Record
from penstock.values import Message, Stored
from storage.format.names import DLQ_PREFIX, RETRY_PREFIX
from storage.format.properties import RETRY_TOPIC, is_reserved

RESENDER: Final = "penstock-dlq-resend"
"""The group whose progress in a dead letter queue says what has been sent again."""
_RETRIES: Final = 1_000_000  # the most there is: what is given up would count as sent
_LEASE_MS: Final = 60_000
_BATCH_MESSAGES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCount:
    """The dead letters of a group that are kept, and those of them that were not sent again."""

    group: str
    messages: int
    to_resend: int


class DeadLetterOperations:
    """Dead letters of consumer groups."""

    request_bytes_max: int

    @operation
    def dead_letter_counts(self, *, timeout_s: float | None = None) -> Plan[list[DeadLetterCount]]:
        """Return the groups that have dead letters, by name."""
        known = yield topics.topics(timeout_s=timeout_s)
        dead = sorted(each.name for each in known if is_dead_letter_topic(each.name))
        if not dead:
            return []
        kept = dict.fromkeys(dead, 0)
        left = dict(kept)
        progress = yield offsets.offsets(RESENDER, timeout_s=timeout_s)
        resent = {(each.topic, each.queue_id): each.queue_offset for each in progress}
        for queue in (yield topics.stored_queues(dead, timeout_s=timeout_s)):
            begin, end = queue.min_offset, queue.max_offset
            at = resent.get((queue.topic, queue.queue_id), begin)
            kept[queue.topic] += end - begin
            left[queue.topic] += end - max(begin, at)
        return [
            DeadLetterCount(group=group_of(topic), messages=kept[topic], to_resend=left[topic])
            for topic in kept
        ]

    @operation
    def resend_dead_letters(
        self, group: str, *, topic: str = "", most: int = 0, again: bool = False
    ) -> Plan[int]:
        """Send a group's dead letters again, each once, the oldest first; return how many were.

        They are new messages of the topics that they come from, or of ``topic``, with their keys, tag, properties
        and unique keys. ``most`` bounds their number, 0 does not; with ``again`` also those are sent that were
        before. After an error the next call goes on behind the last that was stored. Raises TopicNotFound for a
        group without dead letters, InvalidArgument for one that does not say where it comes from.
        """
        dead = dead_letter_topic(group)
        yield topics.describe_topic(dead)
        try:
            yield groups.create_group(RESENDER, retry_max_times=_RETRIES)
        except GroupExists:
            yield groups.update_group(RESENDER, retry_max_times=_RETRIES)
        if again:
            yield groups.reset_group(RESENDER, dead, "earliest")
        sent = 0
        while not most or sent < most:
            room = min(_BATCH_MESSAGES, most - sent) if most else _BATCH_MESSAGES
            resent = yield from self._resend_some(dead, to=topic, most=room)
            if not resent:
                break
            sent += resent
        return sent

    @operation
    def resend(
        self, record: Record, topic: str = "", *, timeout_s: float | None = None
    ) -> Call[Stored]:
        """Store a message again, in the topic that it was sent to first or in another; return where.

        Raises InvalidArgument for a dead letter that does not say where it comes from, where no topic is given.
        """
        copy = copy_of(record, topic or origin_topic(record))
        call = produce.store([copy], bytes_max=self.request_bytes_max, timeout_s=timeout_s)
        return call.then(lambda stored: stored[0])

    def _resend_some(self, dead: str, *, to: str, most: int) -> Plan[int]:
        """Lease dead letters, store them again, then acknowledge them; return how many.

        What is not stored is given back, for the next call.
        """
        while True:
            received = yield leases.receive(
                dead, group=RESENDER, max_messages=most, lease_ms=_LEASE_MS
            )
            if received.records or not received.damaged:  # damaged ones were passed over
                break
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
                yield produce.store(copies, bytes_max=self.request_bytes_max)
            stored = len(copies)
            if problem is not None:
                raise problem
        finally:
            end = stored * received.handle_width
            done, rest = received.receipt_handles[:end], received.receipt_handles[end:]
            if done:
                yield leases.settle("acknowledge", RESENDER, dead, done)
            if rest:
                yield leases.settle("change", RESENDER, dead, rest, 0)
        return stored


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return f"{DLQ_PREFIX}{group}"


def is_dead_letter_topic(topic: str) -> bool:
    """Whether a topic has a group's dead letters."""
    return topic.startswith(DLQ_PREFIX)


def group_of(topic: str) -> str:
    """Return the group whose dead letters a topic has."""
    return topic.removeprefix(DLQ_PREFIX)


def origin_topic(record: Record) -> str:
    """Return the topic that a message was sent to first; of a dead letter or a retry it is another than its own.

    Raises InvalidArgument where a dead letter does not say it.
    """
    group = group_of(record.topic)
    origin = record.properties.get(RETRY_TOPIC, "")
    if not is_dead_letter_topic(record.topic):
        return origin or record.topic
    if not origin:
        raise InvalidArgument(
            f"the dead letter at offset {record.queue_offset} does not say where it comes from:"
            " give a topic",
            field="topic",
        )
    for between in "_+":  # a broker has two ways to name it
        origin = origin.removeprefix(f"{RETRY_PREFIX}{group}{between}")
    return origin


def copy_of(record: Record, topic: str) -> Message:
    """Return a record as a new message of a topic, with its keys, tag, properties and unique key."""
    own = {name: value for name, value in record.properties.items() if not is_reserved(name)}
    return Message(
        topic=topic,
        body=record.stored_body,
        keys=record.keys,
        tag=record.tag,
        properties=own,
        unique_key=record.unique_key,
        flag=record.flag,
        sys_flag=record.compression_flags,
    )
