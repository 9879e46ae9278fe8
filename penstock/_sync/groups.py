# Written by make client from penstock/_async: change it there.
"""Consumer groups: create, change, describe, delete, reset."""

from __future__ import annotations

from collections.abc import Iterable

from penstock._sync.connection import Connection
from penstock.calls import groups
from penstock.group_values import (
    Begin,
    ConnectedClient,
    ExponentialBackoff,
    Group,
    GroupDescription,
    QueueReset,
    ResetTo,
)


class Groups(Connection):
    """Consumer groups over a connection."""

    def create_group(
        self,
        name: str,
        *,
        retry_max_times: int | None = None,
        orderly: bool | None = None,
        paused: bool | None = None,
        backoff: Iterable[int] | ExponentialBackoff | None = None,
        begin: Begin | None = None,
        timeout_s: float | None = None,
    ) -> Group:
        """Create a consumer group with a broker's defaults for what is not given.

        ``backoff`` has the delays in milliseconds after the first attempt, the second, and so on. Raises
        GroupExists if there is such a group.
        """
        call = groups.create(
            name,
            retry_max_times=retry_max_times,
            orderly=orderly,
            paused=paused,
            backoff=backoff,
            begin=begin,
        )
        return self.run(call, timeout_s=timeout_s)

    def update_group(
        self,
        name: str,
        *,
        retry_max_times: int | None = None,
        orderly: bool | None = None,
        paused: bool | None = None,
        backoff: Iterable[int] | ExponentialBackoff | None = None,
        begin: Begin | None = None,
        timeout_s: float | None = None,
    ) -> Group:
        """Change the given settings of a group and return it."""
        call = groups.update(
            name,
            retry_max_times=retry_max_times,
            orderly=orderly,
            paused=paused,
            backoff=backoff,
            begin=begin,
        )
        return self.run(call, timeout_s=timeout_s)

    def describe_group(
        self, name: str, topic: str = "", *, timeout_s: float | None = None
    ) -> GroupDescription:
        """Return a group's settings and its progress in one topic, or in all of its topics."""
        return self.run(groups.describe(name, topic), timeout_s=timeout_s)

    def group_settings(self, *, timeout_s: float | None = None) -> list[Group]:
        """Return the settings of all groups that have some, by name."""
        return self.run(groups.list_all(), timeout_s=timeout_s)

    def connected_clients(
        self, group: str = "", *, timeout_s: float | None = None
    ) -> list[ConnectedClient]:
        """Return RocketMQ's clients that the reader's gateway has heard of lately: of one group, or all.

        Those silent for longest come first. Raises Unimplemented where the reader has no gateway.
        """
        return self.run(groups.clients(group), timeout_s=timeout_s)

    def delete_group(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a group's settings, leases and offsets; its dead letters stay."""
        self.run(groups.delete(name), timeout_s=timeout_s)

    def reset_group(
        self,
        name: str,
        topic: str,
        to: ResetTo,
        *,
        queues: Iterable[int] = (),
        preview: bool = False,
        timeout_s: float | None = None,
    ) -> list[QueueReset]:
        """Set where a group goes on in a topic; with ``preview`` only return what that would do.

        ``to`` is "earliest", "latest", a time, or the offset of the one queue in ``queues``. Leases are
        dropped: an acknowledgement of them is refused.
        """
        call = groups.reset(name, topic, to, queues=queues, preview=preview)
        return self.run(call, timeout_s=timeout_s)
