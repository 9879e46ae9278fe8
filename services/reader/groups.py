"""Settings of consumer groups, to and from the contract, and the table of them."""

from __future__ import annotations

from typing import Final

from penstock.v1 import groups_pb2
from services.rpc.status import InvalidArgument
from services.wire import message_from
from storage.format.backoff import Backoff, CustomizedBackoff, ExponentialBackoff
from storage.tables.groups import Begin, GroupConfig

_BEGINS: Final[dict[int, Begin]] = {
    groups_pb2.FROM_EARLIEST: "earliest",
    groups_pb2.FROM_LATEST: "latest",
}
_PLAIN: Final = ("retry_max_times", "orderly", "consume_enable")
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
        **{name: getattr(settings, name) for name in _PLAIN if settings.HasField(name)},
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
    if isinstance(group.backoff, CustomizedBackoff):
        customized = message_from(groups_pb2.CustomizedBackoff, group.backoff)
        backoff = groups_pb2.Backoff(customized=customized)
    else:
        exponential = message_from(groups_pb2.ExponentialBackoff, group.backoff)
        backoff = groups_pb2.Backoff(exponential=exponential)
    begin = _BEGIN_NAMES[group.begin]
    return message_from(groups_pb2.GroupSettings, group, backoff=backoff, begin=begin)
