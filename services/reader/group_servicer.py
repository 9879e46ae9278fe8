"""The methods of penstock.v1.Groups. All of them read or write files, so all of them run in threads.

Those that only read run in the threads of reads, which the service's end does not wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor

from penstock.v1 import groups_pb2
from services.reader.catch_up import CatchUp
from services.reader.groups import begin_of, changed_group, settings_message
from services.reader.leases import ReaderLeases
from services.rpc.servicer import Context
from services.rpc.status import InvalidArgument
from storage.errors import GroupNotFound, QueueNotFound, TopicNotFound
from storage.format.names import consumer_group_problem, group_name_problem
from storage.leases.values import QueueLeases
from storage.reader import StoreReader
from storage.tables.groups import GroupConfig


class GroupServicer:
    """``changed`` is called on the event loop with a group whose settings or progress were set."""

    def __init__(
        self,
        reader: StoreReader,
        leases: ReaderLeases,
        catch_up: CatchUp,
        changed: Callable[[str], None],
        reads: Executor,
    ) -> None:
        self._reader = reader
        self._groups = reader.groups
        self._leases = leases
        self._queues = leases.queues
        self._catch_up = catch_up
        self._changed = changed
        self._reads = reads
        self._loop = asyncio.get_running_loop()

    async def create_group(
        self, request: groups_pb2.CreateGroupRequest, _context: Context
    ) -> groups_pb2.GroupSettings:
        """Add a group, durable on return."""
        group = changed_group(GroupConfig(name=request.settings.name), request.settings)
        return settings_message(await asyncio.to_thread(self._groups.create, group))

    async def update_group(
        self, request: groups_pb2.UpdateGroupRequest, _context: Context
    ) -> groups_pb2.GroupSettings:
        """Change what is given of a group, durable on return."""
        settings = request.settings
        group = await asyncio.to_thread(
            self._groups.update, settings.name, lambda group: changed_group(group, settings)
        )
        self._changed(group.name)
        return settings_message(group)

    async def describe_group(
        self, request: groups_pb2.DescribeGroupRequest, context: Context
    ) -> groups_pb2.DescribeGroupResponse:
        """Return a group's settings, and where it is."""
        await self._catch_up.everything_visible(context)
        return await self._loop.run_in_executor(self._reads, self._describe, request)

    async def delete_group(
        self, request: groups_pb2.DeleteGroupRequest, _context: Context
    ) -> groups_pb2.DeleteGroupResponse:
        """Remove a group's settings, leases and offsets, durable on return."""
        await asyncio.to_thread(self._delete, request.group)
        self._changed(request.group)
        return groups_pb2.DeleteGroupResponse()

    async def list_group_settings(
        self, _request: groups_pb2.ListGroupSettingsRequest, _context: Context
    ) -> groups_pb2.ListGroupSettingsResponse:
        """Return the settings of all groups that have some."""
        groups = await self._loop.run_in_executor(self._reads, self._groups.all)
        return groups_pb2.ListGroupSettingsResponse(groups=map(settings_message, groups))

    async def reset_group(
        self, request: groups_pb2.ResetGroupRequest, context: Context
    ) -> groups_pb2.ResetGroupResponse:
        """Set where a group goes on, durable on return; with preview say where that would be."""
        await self._catch_up.everything_visible(context)
        response = await asyncio.to_thread(self._reset, request)
        if not request.preview:
            self._changed(request.group)
        return response

    def _topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has progress, by name."""
        return sorted({*self._leases.topics_of(group), *self._reader.committed_offsets(group)})

    def _existing(self, name: str) -> GroupConfig:
        """Return a group's settings, default ones for a group that only has progress."""
        problem = group_name_problem(name)
        if problem:
            raise InvalidArgument("group", problem)
        group = self._groups.find(name)
        if group is None:
            if not self._topics_of(name):
                raise GroupNotFound(name)
            group = GroupConfig(name=name)
        return group

    def _consuming(self, name: str) -> GroupConfig:
        """As ``_existing``, of a group that is not the store's own."""
        problem = consumer_group_problem(name)
        if problem:
            raise InvalidArgument("group", problem)
        return self._existing(name)

    def _describe(
        self, request: groups_pb2.DescribeGroupRequest
    ) -> groups_pb2.DescribeGroupResponse:
        group = self._existing(request.group)
        if request.topic:
            self._queues.queue_ids(request.topic)
            topics = [request.topic]
        else:
            topics = self._topics_of(group.name)
        return groups_pb2.DescribeGroupResponse(
            settings=settings_message(group), queues=self._progress(group, topics)
        )

    def _delete(self, name: str) -> None:
        self._consuming(name)
        if self._groups.find(name) is not None:
            self._groups.delete(name)
        self._leases.forget(name)

    def _reset(self, request: groups_pb2.ResetGroupRequest) -> groups_pb2.ResetGroupResponse:
        group = self._consuming(request.group)
        queue_ids = sorted(self._queues.queue_ids(request.topic))
        chosen = sorted(set(request.queue_ids)) or queue_ids
        for queue_id in chosen:
            if queue_id not in queue_ids:
                raise QueueNotFound(request.topic, queue_id, len(queue_ids))
        if request.WhichOneof("to") == "queue_offset" and len(chosen) != 1:
            raise InvalidArgument("queue_ids", "name one queue to set it to a queue offset")
        response = groups_pb2.ResetGroupResponse()
        targets: dict[int, int] = {}
        for queue in self._progress(group, [request.topic]):
            if queue.topic != request.topic or queue.queue_id not in chosen:
                continue
            target = targets[queue.queue_id] = self._target(request, queue)
            response.queues.add(
                topic=queue.topic, queue_id=queue.queue_id, from_offset=queue.group_offset,
                to_offset=target, lag_before=queue.lag,
                lag_after=max(0, queue.max_offset - target),
            )  # fmt: skip
        if not request.preview:
            drops_retries = request.begin == groups_pb2.FROM_LATEST
            self._leases.reset(group, request.topic, targets, drops_retries=drops_retries)
        return response

    def _progress(
        self, group: GroupConfig, topics: Sequence[str]
    ) -> Iterator[groups_pb2.GroupQueue]:
        """Yield where a group is in each queue of some topics; those that are gone are left out."""
        leases = {
            (queue.topic, queue.queue_id): queue
            for topic in topics
            for queue in self._leases.progress(group, topic)
        }
        offsets = self._reader.committed_offsets(group.name)
        for topic in sorted({*topics, *(topic for topic, _ in leases)}):
            try:
                queue_ids = sorted(self._queues.queue_ids(topic))
            except TopicNotFound:
                continue
            for queue_id in queue_ids:
                low, high = self._queues.bounds(topic, queue_id)
                at = leases.get((topic, queue_id))
                if at is None:
                    begin = low if group.begin == "earliest" else high
                    offset = offsets.get(topic, {}).get(queue_id, begin)
                    at = QueueLeases(topic, queue_id, offset, offset, 0, 0)
                yield groups_pb2.GroupQueue(
                    topic=topic, queue_id=queue_id, min_offset=low, max_offset=high,
                    group_offset=at.group_offset, next_offset=at.next_offset,
                    leased=at.leased_count, waiting=at.waiting_count,
                    lag=max(0, high - at.next_offset) + at.leased_count + at.waiting_count,
                )  # fmt: skip

    def _target(self, request: groups_pb2.ResetGroupRequest, queue: groups_pb2.GroupQueue) -> int:
        """Return where a reset takes a group in a queue. Raises InvalidArgument."""
        which = request.WhichOneof("to")
        if which == "begin":
            begin = begin_of(request.begin)
            if begin is not None:
                return queue.min_offset if begin == "earliest" else queue.max_offset
        elif which == "timestamp_ms":
            return self._reader.offset_by_time(
                queue.topic, queue.queue_id, timestamp_ms=request.timestamp_ms
            )
        elif which == "queue_offset":
            if not queue.min_offset <= request.queue_offset <= queue.max_offset:
                raise InvalidArgument(
                    "queue_offset",
                    f"must lie between {queue.min_offset} and {queue.max_offset},"
                    f" and is {request.queue_offset}",
                )
            return request.queue_offset
        raise InvalidArgument("to", "give begin, timestamp_ms or queue_offset")
