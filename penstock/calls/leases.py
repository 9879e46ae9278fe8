"""Leases: receive messages for a time, and say what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.operation import operation, operation_of
from penstock.calls.records import damages
from penstock.framing import WithRecords
from penstock.leased import Received, RefusedHandle
from penstock.record import Records
from penstock.requests import build, value_of
from penstock.v1 import leases_pb2
from penstock.wire import Method

TrackState: TypeAlias = Literal["ready", "in_flight", "waiting", "done", "before_begin", "dead"]
"""Not handed out yet, or its time has come again; under a lease; handed out, and waiting for its next attempt or for
an earlier one of its message group; acknowledged, or passed over by a filter, a reset or a commit; stored before the
group began; given up.
"""
_STATES: Final[Mapping[int, TrackState]] = {
    leases_pb2.READY: "ready",
    leases_pb2.IN_FLIGHT: "in_flight",
    leases_pb2.WAITING: "waiting",
    leases_pb2.DONE: "done",
    leases_pb2.BEFORE_BEGIN: "before_begin",
    leases_pb2.DEAD: "dead",
}
Action = Literal["acknowledge", "change", "dead-letter"]
_SETTLED_BY: Final[Mapping[Action, tuple[Method, Any]]] = {
    "acknowledge": (wire.ACKNOWLEDGE, leases_pb2.AcknowledgeRequest),
    "change": (wire.CHANGE_LEASES, leases_pb2.ChangeLeasesRequest),
    "dead-letter": (wire.DEAD_LETTER, leases_pb2.DeadLetterRequest),
}


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


def receive(
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
) -> Call[Received]:
    """Lease messages of a topic, waiting up to ``wait_ms`` for the first one.

    A message that is not acknowledged within ``lease_ms`` is delivered again. Give ``tag``, an
    expression, or ``sql``, an SQL92 filter over properties, or neither.
    """
    request = build(
        leases_pb2.ReceiveRequest,
        group=group,
        topic=topic,
        max_messages=max_messages,
        max_bytes=max_bytes,
        lease_ms=lease_ms,
        wait_ms=wait_ms,
        tag_expression=tag,
        sql_expression=sql,
    )

    def received(answer: WithRecords) -> Received:
        front: leases_pb2.ReceiveResponse = answer.front
        return Received(
            group=group,
            topic=topic,
            records=Records(answer.records, front.record_count),
            attempts=front.attempts,
            receipt_handles=front.receipt_handles,
            lease_end_ms=front.lease_end_ms,
            damaged=damages(front.damaged),
        )

    return Call(wire.RECEIVE, request, received, wait_ms=wait_ms, timeout_s=timeout_s)


def renewed_for(client_id: str, call: Call[Received]) -> Call[Received]:
    """Have a receive lease messages for a client that renews them."""
    call.request.auto_renew, call.request.client_id = True, client_id
    return call


def settle(
    action: Action,
    group: str,
    topic: str,
    handles: bytes,
    duration_ms: int | None = None,
    timeout_s: float | None = None,
) -> Call[list[RefusedHandle]]:
    """Say what becomes of leased messages; returns the handles that were refused.

    "change" has their leases last ``duration_ms`` from now on; None gives them back by the group's backoff.
    """
    method, kind = _SETTLED_BY[action]
    duration = {"duration_ms": duration_ms} if action == "change" else {}
    request = build(kind, group=group, topic=topic, receipt_handles=handles, **duration)
    return Call(
        method,
        request,
        lambda answer: [
            RefusedHandle(index=each.index, problem=leases_pb2.HandleProblem.Name(each.problem))
            for each in answer.refused
        ],
        timeout_s=timeout_s,
    )


def renew(client_ids: Sequence[str]) -> Call[int]:
    """Extend the leases that these clients have renewed; returns how many."""
    request = build(leases_pb2.RenewLeasesRequest, client_ids=client_ids)
    return Call(wire.RENEW_LEASES, request, lambda answer: int(answer.renewed_count))


def release(client_ids: Sequence[str], group: str = "") -> Call[int]:
    """End the leases of clients that go; returns how many."""
    request = build(leases_pb2.ReleaseLeasesRequest, client_ids=client_ids, group=group)
    return Call(wire.RELEASE_LEASES, request, lambda answer: int(answer.released_count))


class LeaseOperations:
    """Leases by hand, batch by batch; a subscription does it for you."""

    receive = operation_of(receive)

    @operation
    def acknowledge(
        self, received: Received, handles: bytes | None = None, *, timeout_s: float | None = None
    ) -> Call[list[RefusedHandle]]:
        """Acknowledge the received messages, or those of ``handles``: they are done.

        Returns the handles that were refused, such as those of ended leases.
        """
        return _settle("acknowledge", received, handles, None, timeout_s)

    @operation
    def change_leases(
        self,
        received: Received,
        duration_ms: int | None = None,
        handles: bytes | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Call[list[RefusedHandle]]:
        """End leases ``duration_ms`` from now: later for more time, sooner to give messages back.

        Without it messages are given back by the group's backoff. Returns the handles that were refused.
        """
        return _settle("change", received, handles, duration_ms, timeout_s)

    @operation
    def dead_letter(
        self, received: Received, handles: bytes | None = None, *, timeout_s: float | None = None
    ) -> Call[list[RefusedHandle]]:
        """Move messages to the group's dead letters, topic ``%DLQ%group``, and acknowledge them.

        Returns the handles that were refused.
        """
        return _settle("dead-letter", received, handles, None, timeout_s)

    @operation
    def track(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        commit_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> Call[list[MessageTrack]]:
        """Return what each consumer group that reads a queue did with one of its messages, by group.

        A record has all four under these names; with ``commit_offset`` no message of a former topic is taken for one of the
        topic that has its name now. Groups that the user may not see are left out, and so are those that never read the
        queue. Raises TopicNotFound, or InvalidArgument if the queue has no such message.
        """
        request = build(
            leases_pb2.TrackMessageRequest,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            commit_offset=commit_offset,
        )
        return Call(
            wire.TRACK_MESSAGE,
            request,
            lambda answer: list(map(_track, answer.groups)),
            timeout_s=timeout_s,
        )


def _settle(
    action: Action,
    received: Received,
    handles: bytes | None,
    duration_ms: int | None,
    timeout_s: float | None,
) -> Call[list[RefusedHandle]]:
    handles = received.receipt_handles if handles is None else handles
    return settle(action, received.group, received.topic, handles, duration_ms, timeout_s)


def _track(track: leases_pb2.MessageTrack) -> MessageTrack:
    is_kept = track.HasField("dead_letter_commit_offset")
    return value_of(
        MessageTrack,
        track,
        state=_STATES[track.state],
        dead_letter_commit_offset=track.dead_letter_commit_offset if is_kept else None,
    )
