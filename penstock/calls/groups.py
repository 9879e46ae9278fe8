"""Consumer groups in requests and answers: their settings, their progress, and setting it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from penstock.calls.offsets import timestamp_ms
from penstock.errors import InvalidArgument
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
from penstock.v1 import groups_pb2

_BEGINS = {"earliest": groups_pb2.FROM_EARLIEST, "latest": groups_pb2.FROM_LATEST}


def target_of(to: ResetTo) -> dict[str, Any]:
    """Return where a reset goes, as fields of its request. Raises InvalidArgument."""
    if isinstance(to, str):
        if to not in _BEGINS:
            raise InvalidArgument(f"to: {to!r} is neither 'earliest' nor 'latest'", field="to")
        return {"begin": _BEGINS[to]}
    if isinstance(to, datetime):
        return {"timestamp_ms": timestamp_ms(to, field="to")}
    return {"queue_offset": to}


def settings_of(
    name: str,
    retry_max_times: int | None,
    orderly: bool | None,
    paused: bool | None,
    backoff: Iterable[int] | ExponentialBackoff | None,
    begin: str | None,
) -> groups_pb2.GroupSettings:
    """Return what is given of a group's settings. Raises InvalidArgument."""
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


def group_of(settings: groups_pb2.GroupSettings) -> Group:
    """Return a group."""
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


def groups_of(answer: Any) -> list[Group]:
    """Return the groups of an answer."""
    return [group_of(each) for each in answer.groups]


def description_of(answer: Any) -> GroupDescription:
    """Return a group and its progress in each queue."""
    queues = tuple(value_of(GroupQueue, queue) for queue in answer.queues)
    return GroupDescription(group=group_of(answer.settings), queues=queues)


def clients_of(answer: Any) -> list[ConnectedClient]:
    """Return the clients of RocketMQ's that a gateway has heard of."""
    return [value_of(ConnectedClient, each) for each in answer.clients]


def resets_of(answer: Any) -> list[QueueReset]:
    """Return what a reset does to each queue."""
    return [value_of(QueueReset, each) for each in answer.queues]
