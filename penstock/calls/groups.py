"""Calls about consumer groups: their settings, their progress, and setting it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.offsets import timestamp_ms
from penstock.errors import GroupNotFound, InvalidArgument, NotFound
from penstock.group_values import (
    ConnectedClient,
    ExponentialBackoff,
    Group,
    GroupDescription,
    GroupQueue,
    QueueReset,
    ResetTo,
)
from penstock.requests import build, value_of
from penstock.retry import Repeat
from penstock.v1 import gateway_pb2, groups_pb2

_BEGINS = {"earliest": groups_pb2.FROM_EARLIEST, "latest": groups_pb2.FROM_LATEST}


def create(name: str, **changes: Any) -> Call[Group]:
    """Create a group; a repeat would find it there."""
    request = build(groups_pb2.CreateGroupRequest, settings=_settings(name, **changes))
    return Call(wire.CREATE_GROUP, request, _group, repeat=Repeat.NEVER)


def update(name: str, **changes: Any) -> Call[Group]:
    """Set what is given; doing so twice sets the same."""
    request = build(groups_pb2.UpdateGroupRequest, settings=_settings(name, **changes))
    return Call(wire.UPDATE_GROUP, request, _group, not_found=GroupNotFound)


def describe(name: str, topic: str = "") -> Call[GroupDescription]:
    """Ask for a group's settings and its progress in each queue."""
    return Call(
        wire.DESCRIBE_GROUP,
        build(groups_pb2.DescribeGroupRequest, group=name, topic=topic),
        lambda answer: GroupDescription(
            group=_group(answer.settings),
            queues=tuple(value_of(GroupQueue, queue) for queue in answer.queues),
        ),
        not_found=GroupNotFound,
    )


def delete(name: str) -> Call[None]:
    """Delete a group; a repeat would not find it."""
    return Call(
        wire.DELETE_GROUP,
        build(groups_pb2.DeleteGroupRequest, group=name),
        lambda _: None,
        repeat=Repeat.NEVER,
        not_found=GroupNotFound,
    )


def list_all() -> Call[list[Group]]:
    """Ask for the settings of all groups."""
    return Call(
        wire.LIST_GROUP_SETTINGS,
        groups_pb2.ListGroupSettingsRequest(),
        lambda answer: [_group(each) for each in answer.groups],
    )


def clients(group: str) -> Call[list[ConnectedClient]]:
    """Ask the reader's gateway which of RocketMQ's clients it has heard of lately."""
    return Call(
        wire.LIST_CLIENTS,
        build(gateway_pb2.ListClientsRequest, group=group),
        lambda answer: [value_of(ConnectedClient, each) for each in answer.clients],
    )


def reset(
    name: str, topic: str, to: ResetTo, *, queues: Iterable[int] = (), preview: bool = False
) -> Call[list[QueueReset]]:
    """Set where a group goes on. It is not repeated: a second reset would drop leases made in between."""
    target: dict[str, Any]
    if isinstance(to, str):
        if to not in _BEGINS:
            raise InvalidArgument(f"to: {to!r} is neither 'earliest' nor 'latest'", field="to")
        target = {"begin": _BEGINS[to]}
    elif isinstance(to, datetime):
        target = {"timestamp_ms": timestamp_ms(to, field="to")}
    else:
        target = {"queue_offset": to}
    request = build(
        groups_pb2.ResetGroupRequest,
        group=name,
        topic=topic,
        queue_ids=list(queues),
        preview=preview,
        **target,
    )
    return Call(
        wire.RESET_GROUP,
        request,
        lambda answer: [value_of(QueueReset, each) for each in answer.queues],
        repeat=Repeat.SAFE if preview else Repeat.NEVER,
        not_found=NotFound,
    )


def _settings(
    name: str,
    *,
    retry_max_times: int | None = None,
    orderly: bool | None = None,
    paused: bool | None = None,
    backoff: Iterable[int] | ExponentialBackoff | None = None,
    begin: str | None = None,
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
