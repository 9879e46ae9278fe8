"""Calls about leases: receive messages for a time, and say what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.records import damages
from penstock.framing import WithRecords
from penstock.group_values import MessageTrack, TrackState
from penstock.leased import Received, RefusedHandle
from penstock.record import Records
from penstock.requests import build, value_of
from penstock.v1 import leases_pb2
from penstock.wire import Method

_STATES: Final[Mapping[int, TrackState]] = {
    leases_pb2.READY: "ready",
    leases_pb2.IN_FLIGHT: "in_flight",
    leases_pb2.WAITING: "waiting",
    leases_pb2.DONE: "done",
    leases_pb2.BEFORE_BEGIN: "before_begin",
    leases_pb2.DEAD: "dead",
}


def receive(
    topic: str,
    *,
    group: str,
    max_messages: int = 0,
    max_bytes: int = 0,
    lease_ms: int = 0,
    wait_ms: int = 0,
    tag: str = "",
    sql: str = "",
    renewed_for: str = "",
) -> Call[Received]:
    """Lease messages; those of an answer that was lost come again when their leases end."""
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
        auto_renew=bool(renewed_for),
        client_id=renewed_for,
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

    return Call(wire.RECEIVE, request, received, wait_ms=wait_ms)


def acknowledge(group: str, topic: str, handles: bytes) -> Call[list[RefusedHandle]]:
    """End leases: the messages are done. Returns the handles that were refused."""
    return _of_handles(
        wire.ACKNOWLEDGE,
        build(leases_pb2.AcknowledgeRequest, group=group, topic=topic, receipt_handles=handles),
    )


def change(
    group: str, topic: str, handles: bytes, duration_ms: int | None
) -> Call[list[RefusedHandle]]:
    """Set how long leases last from now on; None: give back, by the group's backoff.

    Returns the handles that were refused.
    """
    return _of_handles(
        wire.CHANGE_LEASES,
        build(
            leases_pb2.ChangeLeasesRequest,
            group=group,
            topic=topic,
            receipt_handles=handles,
            duration_ms=duration_ms,
        ),
    )


def dead_letter(group: str, topic: str, handles: bytes) -> Call[list[RefusedHandle]]:
    """Move messages to the group's dead letters. Returns the handles that were refused."""
    return _of_handles(
        wire.DEAD_LETTER,
        build(leases_pb2.DeadLetterRequest, group=group, topic=topic, receipt_handles=handles),
    )


def renew(client_ids: Sequence[str]) -> Call[int]:
    """Extend the leases that these clients have renewed; returns how many."""
    request = build(leases_pb2.RenewLeasesRequest, client_ids=client_ids)
    return Call(wire.RENEW_LEASES, request, lambda answer: int(answer.renewed_count))


def release(client_ids: Sequence[str], group: str = "") -> Call[int]:
    """End the leases of clients that go; returns how many."""
    request = build(leases_pb2.ReleaseLeasesRequest, client_ids=client_ids, group=group)
    return Call(wire.RELEASE_LEASES, request, lambda answer: int(answer.released_count))


def track(
    topic: str, queue_id: int, queue_offset: int, commit_offset: int | None
) -> Call[list[MessageTrack]]:
    """Ask what each group that reads a queue did with one message of it."""
    request = build(
        leases_pb2.TrackMessageRequest,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_offset=commit_offset,
    )
    return Call(wire.TRACK_MESSAGE, request, lambda answer: list(map(_track, answer.groups)))


def _track(track: leases_pb2.MessageTrack) -> MessageTrack:
    is_kept = track.HasField("dead_letter_commit_offset")
    return value_of(
        MessageTrack,
        track,
        state=_STATES[track.state],
        dead_letter_commit_offset=track.dead_letter_commit_offset if is_kept else None,
    )


def _of_handles(method: Method, request: object) -> Call[list[RefusedHandle]]:
    return Call(
        method,
        request,
        lambda answer: [
            RefusedHandle(index=each.index, problem=leases_pb2.HandleProblem.Name(each.problem))
            for each in answer.refused
        ],
    )
