"""Consumer groups: create, change, describe, delete, reset."""

from __future__ import annotations

from collections.abc import Iterable

from penstock import wire
from penstock._async.connection import AsyncConnection
from penstock.calls.call import Call, nothing
from penstock.calls.groups import (
    clients_of,
    description_of,
    group_of,
    groups_of,
    resets_of,
    settings_of,
    target_of,
)
from penstock.group_values import (
    Begin,
    ConnectedClient,
    ExponentialBackoff,
    Group,
    GroupDescription,
    QueueReset,
    ResetTo,
)
from penstock.requests import build
from penstock.retry import Repeat
from penstock.v1 import gateway_pb2, groups_pb2


class AsyncGroups(AsyncConnection):
    """Consumer groups over a connection."""

    async def create_group(
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
        settings = settings_of(name, retry_max_times, orderly, paused, backoff, begin)
        request = build(groups_pb2.CreateGroupRequest, settings=settings)
        call = Call(wire.CREATE_GROUP, request, group_of, repeat=Repeat.NEVER)
        return await self.run(call, timeout_s=timeout_s)

    async def update_group(
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
        settings = settings_of(name, retry_max_times, orderly, paused, backoff, begin)
        request = build(groups_pb2.UpdateGroupRequest, settings=settings)
        call = Call(wire.UPDATE_GROUP, request, group_of)
        return await self.run(call, timeout_s=timeout_s)

    async def describe_group(
        self, name: str, topic: str = "", *, timeout_s: float | None = None
    ) -> GroupDescription:
        """Return a group's settings and its progress in one topic, or in all of its topics."""
        request = build(groups_pb2.DescribeGroupRequest, group=name, topic=topic)
        call = Call(wire.DESCRIBE_GROUP, request, description_of)
        return await self.run(call, timeout_s=timeout_s)

    async def group_settings(self, *, timeout_s: float | None = None) -> list[Group]:
        """Return the settings of all groups that have some, by name."""
        request = groups_pb2.ListGroupSettingsRequest()
        call = Call(wire.LIST_GROUP_SETTINGS, request, groups_of)
        return await self.run(call, timeout_s=timeout_s)

    async def connected_clients(
        self, group: str = "", *, timeout_s: float | None = None
    ) -> list[ConnectedClient]:
        """Return RocketMQ's clients that the reader's gateway has heard of lately: of one group, or all.

        Those silent for longest come first. Raises Unimplemented where the reader has no gateway.
        """
        request = build(gateway_pb2.ListClientsRequest, group=group)
        call = Call(wire.LIST_CLIENTS, request, clients_of)
        return await self.run(call, timeout_s=timeout_s)

    async def delete_group(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a group's settings, leases and offsets; its dead letters stay."""
        request = build(groups_pb2.DeleteGroupRequest, group=name)
        call = Call(wire.DELETE_GROUP, request, nothing, repeat=Repeat.NEVER)
        await self.run(call, timeout_s=timeout_s)

    async def reset_group(
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
        request = build(
            groups_pb2.ResetGroupRequest,
            group=name,
            topic=topic,
            queue_ids=list(queues),
            preview=preview,
            **target_of(to),
        )
        # A second reset would drop leases that were made in between.
        repeat = Repeat.SAFE if preview else Repeat.NEVER
        call = Call(wire.RESET_GROUP, request, resets_of, repeat=repeat)
        return await self.run(call, timeout_s=timeout_s)
