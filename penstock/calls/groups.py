"""Consumer groups: create, change, describe, delete, reset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.offsets import timestamp_ms
from penstock.calls.operation import operation, operation_of
from penstock.errors import InvalidArgument
from penstock.requests import build, each, nothing, value_of
from penstock.retry import Repeat
from penstock.v1 import gateway_pb2, groups_pb2
from storage.format.backoff import ExponentialBackoff as ExponentialBackoff

Begin: TypeAlias = Literal["earliest", "latest"]
ResetTo: TypeAlias = Begin | int | datetime
"""The earliest or latest message, a queue offset, or the first message stored at or after a time."""
_BEGINS = {"earliest": groups_pb2.FROM_EARLIEST, "latest": groups_pb2.FROM_LATEST}


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


def create_group(
    name: str,
    *,
    retry_max_times: int | None = None,
    orderly: bool | None = None,
    paused: bool | None = None,
    backoff: Iterable[int] | ExponentialBackoff | None = None,
    begin: Begin | None = None,
    timeout_s: float | None = None,
) -> Call[Group]:
    """Create a consumer group with a broker's defaults for what is not given.

    ``backoff`` has the delays in milliseconds after the first attempt, the second, and so on. Raises
    GroupExists if there is such a group.
    """
    settings = _settings(name, retry_max_times, orderly, paused, backoff, begin)
    request = build(groups_pb2.CreateGroupRequest, settings=settings)
    return Call(wire.CREATE_GROUP, request, _group, repeat=Repeat.NEVER, timeout_s=timeout_s)


def update_group(
    name: str,
    *,
    retry_max_times: int | None = None,
    orderly: bool | None = None,
    paused: bool | None = None,
    backoff: Iterable[int] | ExponentialBackoff | None = None,
    begin: Begin | None = None,
    timeout_s: float | None = None,
) -> Call[Group]:
    """Change the given settings of a group and return it."""
    settings = _settings(name, retry_max_times, orderly, paused, backoff, begin)
    request = build(groups_pb2.UpdateGroupRequest, settings=settings)
    return Call(wire.UPDATE_GROUP, request, _group, timeout_s=timeout_s)


def reset_group(
    name: str,
    topic: str,
    to: ResetTo,
    *,
    queues: Iterable[int] = (),
    preview: bool = False,
    timeout_s: float | None = None,
) -> Call[list[QueueReset]]:
    """Set where a group goes on in a topic; with ``preview`` only return what that would do.

    ``to`` is "earliest", "latest", a time, or the offset of the one queue in ``queues``. Leases are
    dropped: an acknowledgement of them is refused.
    """
    request = build(
        groups_pb2.ResetGroupRequest,
        group=name,
        topic=topic,
        queue_ids=list(queues),
        preview=preview,
        **_target(to),
    )
    # A second reset would drop leases that were made in between.
    repeat = Repeat.SAFE if preview else Repeat.NEVER
    return Call(
        wire.RESET_GROUP,
        request,
        each(QueueReset, "queues"),
        repeat=repeat,
        timeout_s=timeout_s,
    )


class GroupOperations:
    """Consumer groups: their settings, their progress, and setting it."""

    create_group = operation_of(create_group)
    update_group = operation_of(update_group)
    reset_group = operation_of(reset_group)

    @operation
    def describe_group(
        self, name: str, topic: str = "", *, timeout_s: float | None = None
    ) -> Call[GroupDescription]:
        """Return a group's settings and its progress in one topic, or in all of its topics."""
        request = build(groups_pb2.DescribeGroupRequest, group=name, topic=topic)
        return Call(wire.DESCRIBE_GROUP, request, _description, timeout_s=timeout_s)

    @operation
    def group_settings(self, *, timeout_s: float | None = None) -> Call[list[Group]]:
        """Return the settings of all groups that have some, by name."""
        request = groups_pb2.ListGroupSettingsRequest()
        return Call(
            wire.LIST_GROUP_SETTINGS,
            request,
            lambda answer: list(map(_group, answer.groups)),
            timeout_s=timeout_s,
        )

    @operation
    def connected_clients(
        self, group: str = "", *, timeout_s: float | None = None
    ) -> Call[list[ConnectedClient]]:
        """Return RocketMQ's clients that the reader's gateway has heard of lately: of one group, or all.

        Those silent for longest come first. Raises Unimplemented where the reader has no gateway.
        """
        request = build(gateway_pb2.ListClientsRequest, group=group)
        return Call(
            wire.LIST_CLIENTS, request, each(ConnectedClient, "clients"), timeout_s=timeout_s
        )

    @operation
    def delete_group(self, name: str, *, timeout_s: float | None = None) -> Call[None]:
        """Delete a group's settings, leases and offsets; its dead letters stay."""
        request = build(groups_pb2.DeleteGroupRequest, group=name)
        return Call(wire.DELETE_GROUP, request, nothing, repeat=Repeat.NEVER, timeout_s=timeout_s)


def _target(to: ResetTo) -> dict[str, Any]:
    """Return where a reset goes, as fields of its request. Raises InvalidArgument."""
    if isinstance(to, str):
        if to not in _BEGINS:
            raise InvalidArgument(f"to: {to!r} is neither 'earliest' nor 'latest'", field="to")
        return {"begin": _BEGINS[to]}
    if isinstance(to, datetime):
        return {"timestamp_ms": timestamp_ms(to, field="to")}
    return {"queue_offset": to}


def _settings(
    name: str,
    retry_max_times: int | None,
    orderly: bool | None,
    paused: bool | None,
    backoff: Iterable[int] | ExponentialBackoff | None,
    begin: str | None,
) -> groups_pb2.GroupSettings:
    if begin is not None and begin not in _BEGINS:
        raise InvalidArgument(f"begin: {begin!r} is neither 'earliest' nor 'latest'", field="begin")
    return build(
        groups_pb2.GroupSettings,
        name=name,
        retry_max_times=retry_max_times,
        orderly=orderly,
        consume_enable=None if paused is None else not paused,
        backoff=None if backoff is None else _backoff(backoff),
        begin=None if begin is None else _BEGINS[begin],
    )


def _backoff(backoff: Iterable[int] | ExponentialBackoff) -> groups_pb2.Backoff:
    if isinstance(backoff, ExponentialBackoff):
        exponential = build(groups_pb2.ExponentialBackoff, **asdict(backoff))
        return groups_pb2.Backoff(exponential=exponential)
    customized = build(groups_pb2.CustomizedBackoff, next_ms=list(backoff))
    return groups_pb2.Backoff(customized=customized)


def _group(settings: groups_pb2.GroupSettings) -> Group:
    backoff: tuple[int, ...] | ExponentialBackoff
    if settings.backoff.WhichOneof("strategy") == "exponential":
        backoff = value_of(ExponentialBackoff, settings.backoff.exponential)
    else:
        backoff = tuple(settings.backoff.customized.next_ms)
    return value_of(
        Group,
        settings,
        paused=not settings.consume_enable,
        backoff=backoff,
        begin="latest" if settings.begin == groups_pb2.FROM_LATEST else "earliest",
    )


def _description(answer: Any) -> GroupDescription:
    queues = tuple(value_of(GroupQueue, queue) for queue in answer.queues)
    return GroupDescription(group=_group(answer.settings), queues=queues)
