"""Settings of consumer groups: ``config/subscriptionGroup.json`` in a broker's shape.

Fields that this code does not know are kept as they were read. The reader that keeps consumer offsets is the
only one who changes the table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from storage.errors import GroupExists, GroupNotFound, InvalidMessage
from storage.format.backoff import Backoff, backoff_in, checked_backoff
from storage.format.config_json import encode_config
from storage.format.names import consumer_group_problem
from storage.tables.table_files import (
    GROUP_MAP,
    GROUPS_FILE,
    data_version,
    group_fields,
    groups_in,
    read_table,
    replace_table,
    settle_table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from storage.clock import Clock
    from storage.files.filesystem import FileSystem

RETRY_MAX_TIMES: Final = 16
RETRY_MAX_TIMES_MAX: Final = 1_000_000
BEGIN_ATTRIBUTE: Final = "penstock.begin"  # a broker keeps attributes that it does not know
Begin = Literal["earliest", "latest"]
_DEFAULT_FIELDS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeFromMinEnable": True,
        "consumeTimeoutMinute": 15,
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
)
_DEFAULT_POLICY: Final[Mapping[str, Any]] = MappingProxyType({"type": "CUSTOMIZED"})
_KNOWN: Final = frozenset(
    {
        "attributes", "consumeEnable", "consumeMessageOrderly", "groupName", "groupRetryPolicy",
        "retryMaxTimes",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """One group: how often and how its messages are handed out.

    ``orderly``: messages of one message group one after the other. ``consume_enable`` False: paused.
    ``retry_policy`` is the backoff in a broker's shape, ``attributes`` may hold where the group begins.
    """

    name: str
    retry_max_times: int = RETRY_MAX_TIMES
    orderly: bool = False
    consume_enable: bool = True
    retry_policy: Mapping[str, Any] = field(default_factory=lambda: _DEFAULT_POLICY)
    attributes: Mapping[str, str] = field(default_factory=dict)
    other_fields: Mapping[str, object] = field(default_factory=lambda: _DEFAULT_FIELDS)

    @property
    def attempts_max(self) -> int:
        """How often a message is handed out before it is a dead letter."""
        return self.retry_max_times + 1

    @property
    def backoff(self) -> Backoff:
        """How long a message that was given back waits."""
        return backoff_in(self.retry_policy)

    @property
    def begin(self) -> Begin:
        """Where the group begins in a queue in which it has no offset."""
        return "latest" if self.attributes.get(BEGIN_ATTRIBUTE) == "latest" else "earliest"

    def changed(
        self,
        *,
        retry_max_times: int | None = None,
        orderly: bool | None = None,
        consume_enable: bool | None = None,
        backoff: Backoff | None = None,
        begin: Begin | None = None,
    ) -> GroupConfig:
        """Return the group with what is given. Raises InvalidMessage."""
        group = self
        if retry_max_times is not None:
            if not 0 <= retry_max_times <= RETRY_MAX_TIMES_MAX:
                raise InvalidMessage(
                    "retry_max_times",
                    f"must lie between 0 and {RETRY_MAX_TIMES_MAX}, not {retry_max_times}",
                )
            group = replace(group, retry_max_times=retry_max_times)
        if orderly is not None:
            group = replace(group, orderly=orderly)
        if consume_enable is not None:
            group = replace(group, consume_enable=consume_enable)
        if backoff is not None:
            group = replace(group, retry_policy=checked_backoff(backoff).to_json())
        if begin is not None and begin != group.begin:
            others = {k: v for k, v in group.attributes.items() if k != BEGIN_ATTRIBUTE}
            added = {} if begin == "earliest" else {BEGIN_ATTRIBUTE: begin}
            group = replace(group, attributes={**others, **added})
        return group

    def to_json(self) -> dict[str, object]:
        """Return the group in a broker's shape, and its order."""
        fields = {
            **self.other_fields,
            "attributes": dict(self.attributes),
            "consumeEnable": self.consume_enable,
            "consumeMessageOrderly": self.orderly,
            "groupName": self.name,
            "groupRetryPolicy": dict(self.retry_policy),
            "retryMaxTimes": self.retry_max_times,
        }
        return dict(sorted(fields.items()))

    @classmethod
    def from_json(cls, name: str, fields: Mapping[str, Any]) -> GroupConfig:
        """Read a group in a broker's shape; missing fields get a broker's class defaults."""
        return cls(
            name=str(fields.get("groupName") or name),
            retry_max_times=int(fields.get("retryMaxTimes", RETRY_MAX_TIMES)),
            orderly=bool(fields.get("consumeMessageOrderly", False)),
            consume_enable=bool(fields.get("consumeEnable", True)),
            retry_policy=dict(fields.get("groupRetryPolicy") or _DEFAULT_POLICY),
            attributes={str(k): str(v) for k, v in (fields.get("attributes") or {}).items()},
            other_fields={k: v for k, v in fields.items() if k not in _KNOWN},
        )


_Parsed = tuple[dict[str, Any], dict[str, GroupConfig]]


def _parsed(document: dict[str, Any]) -> _Parsed:
    version = document.get("dataVersion") or {}
    int(version.get("counter", 0)) + int(version.get("stateVersion", 0))
    groups = [GroupConfig.from_json(name, fields) for name, fields in groups_in(document).items()]
    return document, {group.name: group for group in groups}


class GroupTable:
    """All groups that have settings. Safe to use from several threads.

    ``own`` takes the right to change what belongs to groups, or raises StoreLocked: it is called before
    each change. Until then, the table is read again before each answer.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        config_directory: Path,
        clock: Clock,
        own: Callable[[], None],
    ) -> None:
        self._filesystem = filesystem
        self._path = config_directory / GROUPS_FILE
        self._clock = clock
        self._take = own
        self._owned = False
        self._guard = threading.RLock()
        self._groups: dict[str, GroupConfig] = {}
        self._document: dict[str, Any] = {}
        self._reload()

    def _reload(self) -> None:
        read = read_table(self._filesystem, self._path.parent, GROUPS_FILE, _parsed)
        self._document, self._groups = read or ({}, {})

    def _look(self) -> None:
        if not self._owned:
            self._reload()

    def _own(self) -> None:
        if self._owned:
            return
        self._take()
        settle_table(self._filesystem, self._path, _parsed)
        self._reload()
        self._owned = True

    def find(self, name: str) -> GroupConfig | None:
        """Return a group's settings, None if it has none."""
        with self._guard:
            group = self._groups.get(name) if self._owned else None
            if group is None:
                self._look()
                group = self._groups.get(name)
            return group

    def settings_of(self, name: str) -> GroupConfig:
        """Return a group's settings, a broker's defaults if it has none."""
        return self.find(name) or GroupConfig(name=name)

    def find_kept(self, name: str) -> GroupConfig | None:
        """Return a group's settings if this process changes the table and so need not read it again."""
        return self._groups.get(name) if self._owned else None

    def find_or_create(self, name: str) -> GroupConfig:
        """Return a group's settings, made with a broker's defaults if there are none; durable on return.

        This process changes the table from then on. Raises InvalidMessage, StoreLocked, StoreFull.
        """
        with self._guard:
            self._own()
            return self._groups.get(name) or self.create(GroupConfig(name=name))

    def get(self, name: str) -> GroupConfig:
        """Return a group's settings. Raises GroupNotFound."""
        group = self.find(name)
        if group is None:
            raise GroupNotFound(name)
        return group

    def all(self) -> list[GroupConfig]:
        """Return all groups that have settings, by name."""
        with self._guard:
            self._look()
            return sorted(self._groups.values(), key=lambda group: group.name)

    def create(self, group: GroupConfig) -> GroupConfig:
        """Add a group; durable on return. Raises GroupExists, InvalidMessage, StoreLocked, StoreFull."""
        problem = consumer_group_problem(group.name)
        if problem:
            raise InvalidMessage("group", problem)
        with self._guard:
            self._own()
            if group.name in self._groups:
                raise GroupExists(group.name)
            self._save({**self._groups, group.name: group})
            return group

    def update(self, name: str, change: Callable[[GroupConfig], GroupConfig]) -> GroupConfig:
        """Replace a group by what ``change`` makes of it; durable on return.

        Raises GroupNotFound, StoreLocked, StoreFull, and what ``change`` raises.
        """
        with self._guard:
            self._own()
            before = self.get(name)
            group = change(before)
            if group != before:
                self._save({**self._groups, name: group})
            return group

    def delete(self, name: str) -> None:
        """Remove a group's settings; durable on return. Raises GroupNotFound, StoreLocked, StoreFull."""
        with self._guard:
            self._own()
            self.get(name)
            self._save({k: v for k, v in self._groups.items() if k != name})

    def _save(self, groups: dict[str, GroupConfig]) -> None:
        version = self._document.get("dataVersion") or {}
        now = data_version(
            int(version.get("counter", 0)) + 1,
            int(version.get("stateVersion", 0)),
            self._clock.now_ms(),
        )
        table = {name: groups[name].to_json() for name in sorted(groups)}
        document = {
            **group_fields(table, now),
            **self._document,
            "dataVersion": now,
            GROUP_MAP: table,
        }
        self._filesystem.make_directory(self._path.parent)
        data = encode_config(dict(sorted(document.items())))
        replace_table(self._filesystem, self._path, data)
        self._document, self._groups = document, groups
