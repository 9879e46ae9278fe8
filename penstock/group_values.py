"""Consumer groups, as frozen values; times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from storage.format.backoff import ExponentialBackoff as ExponentialBackoff

Begin: TypeAlias = Literal["earliest", "latest"]
ResetTo: TypeAlias = Begin | int | datetime
"""The earliest or latest message, a queue offset, or the first message stored at or after a time."""

TrackState: TypeAlias = Literal["ready", "in_flight", "waiting", "done", "before_begin", "dead"]
"""Not handed out yet, or its time has come again; under a lease; handed out, and waiting for its next attempt or for
an earlier one of its message group; acknowledged, or passed over by a filter, a reset or a commit; stored before the
group began; given up.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Settings of a consumer group.

    A message is handed out once and then up to ``retry_max_times`` times again. ``backoff`` has the delays
    after the first attempt, the second, and so on; the last one is for all others.
    """

    name: str
    retry_max_times: int
    orderly: bool
    paused: bool
    backoff: tuple[int, ...] | ExponentialBackoff
    begin: Begin


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueue:
    """Progress of a group in one queue.

    Messages before ``group_offset`` are done; those from ``next_offset`` on were never delivered. Between
    them some are leased, and some wait for their next delivery or, in an orderly group, for an earlier one of
    their message group. ``lag`` counts all that are not done.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    group_offset: int
    next_offset: int
    leased: int
    waiting: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group and its progress, by topic and queue id."""

    group: Group
    queues: tuple[GroupQueue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLeases:
    """Messages that a group was handed in all its topics and that are not done; as in `GroupQueue`."""

    group: str
    leased: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """The journal of leases, and the leased messages by group.

    ``problem`` is why leases and acknowledgements are refused until the reader starts again; "" if none.
    """

    journal_bytes: int
    problem: str
    groups: tuple[GroupLeases, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCount:
    """The dead letters of a group that are kept, and those of them that were not sent again."""

    group: str
    messages: int
    to_resend: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedClient:
    """What a client of RocketMQ's said of itself to the gateway, and for how long it has been silent.

    ``kind`` is ``producer``, ``push_consumer`` or ``simple_consumer``; what it did not say is empty.
    """

    client_id: str
    kind: str
    group: str
    topics: tuple[str, ...]
    language: str
    version: str
    peer: str
    silent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReset:
    """A reset's effect on one queue."""

    topic: str
    queue_id: int
    from_offset: int
    to_offset: int
    lag_before: int
    lag_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrack:
    """What a consumer group did with one message.

    ``attempts`` counts how often it was handed out, as far as its leases say. ``until_ms``, Unix milliseconds, is
    when a lease in flight ends, or when a waiting message is handed out again; 0 if no time says that. ``client_id``
    names the client that renews the lease, if one does. A dead letter has the commit offset of its copy in
    ``%DLQ%group``, for `Client.message`, once it is stored.
    """

    group: str
    state: TrackState
    attempts: int
    until_ms: int
    client_id: str
    dead_letter_commit_offset: int | None
