"""Settings of consumer groups, to and from the contract, and the table of them."""

from __future__ import annotations

from typing import Final

from penstock.v1 import groups_pb2
from services.rpc.status import InvalidArgument
from storage.tables.backoff import Backoff, CustomizedBackoff, ExponentialBackoff
from storage.tables.groups import Begin, GroupConfig

_BEGINS: Final[dict[int, Begin]] = {
    groups_pb2.FROM_EARLIEST: "earliest",
    groups_pb2.FROM_LATEST: "latest",
}
_BEGIN_NAMES: Final[dict[Begin, str]] = {"earliest": "FROM_EARLIEST", "latest": "FROM_LATEST"}


def begin_of(value: int, field: str = "begin") -> Begin | None:
    """Return where a group begins; None if it is not said. Raises InvalidArgument."""
    if value == groups_pb2.GROUP_BEGIN_UNSPECIFIED:
        return None
    if value not in _BEGINS:
        raise InvalidArgument(field, f"must be FROM_EARLIEST or FROM_LATEST, and is {value}")
    return _BEGINS[value]


def changed_group(group: GroupConfig, settings: groups_pb2.GroupSettings) -> GroupConfig:
    """Return a group with the settings that are given. Raises InvalidMessage, InvalidArgument."""
    return group.changed(
        retry_max_times=(
            settings.retry_max_times if settings.HasField("retry_max_times") else None
        ),
        orderly=settings.orderly if settings.HasField("orderly") else None,
        consume_enable=settings.consume_enable if settings.HasField("consume_enable") else None,
        backoff=_backoff_of(settings.backoff) if settings.HasField("backoff") else None,
        begin=begin_of(settings.begin),
    )


def _backoff_of(backoff: groups_pb2.Backoff) -> Backoff:
    which = backoff.WhichOneof("strategy")
    if which == "customized":
        return CustomizedBackoff(tuple(backoff.customized.next_ms))
    if which == "exponential":
        given = backoff.exponential
        return ExponentialBackoff(given.initial_ms, given.max_ms, given.multiplier)
    raise InvalidArgument("backoff", "give customized or exponential")


def settings_message(group: GroupConfig) -> groups_pb2.GroupSettings:
    """Return all settings of a group."""
    backoff = group.backoff
    message = groups_pb2.Backoff()
    if isinstance(backoff, CustomizedBackoff):
        message.customized.next_ms.extend(backoff.next_ms)
    else:
        message.exponential.initial_ms = backoff.initial_ms
        message.exponential.max_ms = backoff.max_ms
        message.exponential.multiplier = backoff.multiplier
    return groups_pb2.GroupSettings(
        name=group.name,
        retry_max_times=group.retry_max_times,
        orderly=group.orderly,
        consume_enable=group.consume_enable,
        backoff=message,
        begin=_BEGIN_NAMES[group.begin],
    )
