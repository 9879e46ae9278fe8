"""The reader's methods: request, one call of the engine off the event loop, answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

from penstock.v1 import reader_pb2
from services import wire
from services.loops import Gathering
from services.reader.catch_up import CatchUp
from services.reader.leases import ReaderLeases
from services.reader.pulls import PullQuestion, Pulls
from services.reader.records import ask_decoded, record_message
from services.reader.traffic import Traffic
from services.rpc.servicer import Context
from services.rpc.status import InvalidArgument
from storage.errors import StoreClosed, TopicNotFound
from storage.format.names import group_name_problem
from storage.format.record import decode_record
from storage.leases.values import OffsetCommit
from storage.message import KeyQueryResult
from storage.reader import StoreReader
from storage.view.queues.extent import QueueExtent

QUERY_MESSAGES_DEFAULT: Final = 32
QUERY_MESSAGES_MAX: Final = 64
_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


def _queues_message(extents: Sequence[QueueExtent]) -> reader_pb2.ListQueuesResponse:
    message = reader_pb2.ListQueuesResponse()
    for extent in extents:
        begin, end = extent.commit_range or (None, None)
        message.queues.add(
            topic=extent.topic,
            queue_id=extent.queue_id,
            min_offset=extent.min_offset,
            max_offset=extent.max_offset,
            min_commit_offset=begin,
            end_commit_offset=end,
            approximate_bytes=extent.approximate_bytes,
            topic_incarnation=extent.incarnation,
        )
    return message


class ReaderServicer:
    """The methods of penstock.v1.Reader."""

    def __init__(
        self,
        reader: StoreReader,
        pulls: Pulls,
        catch_up: CatchUp,
        leases: ReaderLeases,
        traffic: Traffic,
        *,
        pull_bytes_max: int,
        wait_ms_max: int,
    ) -> None:
        self._reader = reader
        self._pulls = pulls
        self._catch_up = catch_up
        self._leases = leases
        self._traffic = traffic
        self._commits: Gathering[OffsetCommit, None] = Gathering(
            lambda _, offsets: asyncio.to_thread(leases.commit_existing, offsets)
        )
        self._pull_bytes_max = pull_bytes_max
        self._wait_ms_max = wait_ms_max

    async def pull(self, request: reader_pb2.PullRequest, context: Context) -> bytes:
        """Return records of one queue, waiting for the first if asked to."""
        question = PullQuestion.of(request, bytes_max=self._pull_bytes_max)
        wait_ms = min(max(request.wait_ms, 0), self._wait_ms_max)
        return await self._pulls.one(question, context, wait_ms=wait_ms)

    async def pull_stream(self, request: reader_pb2.PullStreamRequest, context: Context) -> None:
        """Return records of one queue until its end, or for as long as the caller follows."""
        question = PullQuestion.of(request, bytes_max=self._pull_bytes_max)
        await self._pulls.stream(question, context, follow=request.follow)

    async def query_by_key(self, request: reader_pb2.QueryByKeyRequest, context: Context) -> bytes:
        """Return a page of the records with a key."""
        if request.max_messages < 0:
            raise InvalidArgument("max_messages", "must not be negative")
        if not request.page_token:
            await self._catch_up.everything_found_by_key(context)
        return await self._pulls.run(self._query, request)

    async def get_message(
        self, request: reader_pb2.GetMessageRequest, context: Context
    ) -> reader_pb2.GetMessageResponse:
        """Return the record at a commit offset or with an offset message id."""
        await self._catch_up.everything_visible(context)
        return await self._pulls.run(self._message, request)

    async def list_queues(self, request: reader_pb2.ListQueuesRequest, context: Context) -> bytes:
        """Return the range of every queue, and what there is beside them."""
        await self._catch_up.everything_visible(context)
        return await self._while_wanted(self._queues, request)

    async def query_offset(
        self, request: reader_pb2.QueryOffsetRequest, context: Context
    ) -> reader_pb2.QueryOffsetResponse:
        """Return an offset of a queue by position or store time."""
        await self._catch_up.everything_visible(context)
        return await self._pulls.run(self._offset, request)

    async def commit_offset(
        self, request: reader_pb2.CommitOffsetRequest, context: Context
    ) -> reader_pb2.CommitOffsetResponse:
        """Set a group's progress; saved to disk when this returns."""
        if request.queue_offset < 0:
            raise InvalidArgument(
                "queue_offset", f"must not be negative, and is {request.queue_offset}"
            )
        await self._catch_up.everything_visible(context)
        await self._commits.outcome(
            OffsetCommit(request.group, request.topic, request.queue_id, request.queue_offset)
        )
        return reader_pb2.CommitOffsetResponse()

    async def fetch_offsets(
        self, request: reader_pb2.FetchOffsetsRequest, context: Context
    ) -> reader_pb2.FetchOffsetsResponse:
        """Return a group's progress and lag."""
        await self._catch_up.everything_visible(context)
        return await self._while_wanted(self._progress, request)

    async def list_groups(
        self, _request: reader_pb2.ListGroupsRequest, _context: Context
    ) -> reader_pb2.ListGroupsResponse:
        """Return the names of all groups with progress."""
        return reader_pb2.ListGroupsResponse(
            groups=await self._pulls.run(self._reader.consumer_offsets.groups)
        )

    async def get_reader_status(
        self, _request: reader_pb2.GetReaderStatusRequest, _context: Context
    ) -> reader_pb2.ReaderStatus:
        """Return what can be read now."""
        return reader_pb2.ReaderStatus(
            min_commit_offset=self._reader.min_commit_offset,
            visible_offset=self._reader.visible_offset,
            indexed_offset=self._reader.indexed_offset,
            writer_alive=self._catch_up.writer_is_alive(),
            sent_record_count=self._traffic.record_count,
            sent_bytes=self._traffic.size,
        )

    async def _while_wanted(
        self, ask: Callable[[_Request, Callable[[], bool]], _Answer], request: _Request
    ) -> _Answer:
        """Ask about queues that may be very many, in a thread that is told when the caller has gone."""
        is_over = threading.Event()
        try:
            return await self._pulls.run(ask, request, lambda: not is_over.is_set())
        finally:
            is_over.set()

    def _query(self, request: reader_pb2.QueryByKeyRequest) -> bytes:
        def ask(max_messages: int) -> KeyQueryResult:
            return self._reader.query_by_key(
                request.topic,
                request.key,
                unique=request.unique,
                begin_timestamp_ms=request.begin_timestamp_ms,
                end_timestamp_ms=(
                    request.end_timestamp_ms if request.HasField("end_timestamp_ms") else None
                ),
                max_messages=max_messages,
                page_token=request.page_token,
            )

        decoded = None
        max_messages = min(request.max_messages or QUERY_MESSAGES_DEFAULT, QUERY_MESSAGES_MAX)
        if request.decode:
            result, decoded = ask_decoded(ask, max_messages, bytes_max=self._pull_bytes_max)
        else:
            result = ask(max_messages)
        head = reader_pb2.QueryByKeyResponse(
            record_count=result.record_count,
            next_page_token=result.next_page_token,
            indexed_offset=result.indexed_offset,
            damaged=map(wire.damaged_record, result.damaged),
            uncovered=[
                wire.message_from(reader_pb2.UncoveredRange, each) for each in result.uncovered
            ],
        )
        if decoded is None:
            return b"".join(wire.with_records(head, result.slices))
        head.record_count = len(decoded)
        head.decoded.extend(decoded)
        return head.SerializeToString()

    def _message(self, request: reader_pb2.GetMessageRequest) -> reader_pb2.GetMessageResponse:
        which = request.WhichOneof("id")
        if which is None:
            raise InvalidArgument("id", "give a message_id or a commit_offset")
        if which == "message_id":
            try:
                record = self._reader.message_by_id(request.message_id)
            except ValueError as error:
                raise InvalidArgument("message_id", str(error)) from error
        elif request.commit_offset < 0:
            raise InvalidArgument(
                "commit_offset", f"must not be negative, and is {request.commit_offset}"
            )
        else:
            record = self._reader.message(request.commit_offset)
        return reader_pb2.GetMessageResponse(record=record_message(decode_record(record)))

    def _queues(
        self, request: reader_pb2.ListQueuesRequest, is_wanted: Callable[[], bool]
    ) -> bytes:
        head = reader_pb2.ListQueuesResponse(
            topics=self._reader.all_topics(),
            min_commit_offset=self._reader.min_commit_offset,
            visible_offset=self._reader.visible_offset,  # before the queues: they say at least that much
            store_id=self._reader.store_id,
            described=[
                wire.topic_message(topic)
                for name in sorted(set(request.topics))
                if (topic := self._reader.topics.find(name)) is not None
            ],
        )
        extents = self._reader.queue_extents(
            frozenset(request.topics) or None,
            estimate_bytes=request.estimate_bytes,
            is_wanted=is_wanted,
        )
        return wire.sliced(head, extents, _queues_message)

    def _offset(self, request: reader_pb2.QueryOffsetRequest) -> reader_pb2.QueryOffsetResponse:
        topic, queue_id, position = request.topic, request.queue_id, request.position
        low = self._reader.min_offset(topic, queue_id)
        high = self._reader.max_offset(topic, queue_id)
        if position == reader_pb2.EARLIEST:
            found = low
        elif position == reader_pb2.LATEST:
            found = high
        elif position in (reader_pb2.TIME_LOWER, reader_pb2.TIME_UPPER):
            boundary: Literal["lower", "upper"] = (
                "lower" if position == reader_pb2.TIME_LOWER else "upper"
            )
            found = self._reader.offset_by_time(
                topic, queue_id, timestamp_ms=request.timestamp_ms, boundary=boundary
            )
        else:
            raise InvalidArgument(
                "position", "must be one of EARLIEST, LATEST, TIME_LOWER and TIME_UPPER"
            )
        return reader_pb2.QueryOffsetResponse(queue_offset=found, min_offset=low, max_offset=high)

    def _progress(
        self, request: reader_pb2.FetchOffsetsRequest, is_wanted: Callable[[], bool]
    ) -> reader_pb2.FetchOffsetsResponse:
        if problem := group_name_problem(request.group):
            raise InvalidArgument("group", problem)
        response = reader_pb2.FetchOffsetsResponse()
        committed = self._reader.committed_offsets(request.group, is_wanted=is_wanted)
        progress = {topic: dict(at) for topic, at in committed.items()}
        for queue in self._leases.progress_of(request.group):  # newer than what was saved of it
            progress.setdefault(queue.topic, {})[queue.queue_id] = queue.group_offset
        for topic, offsets in sorted(progress.items()):
            if request.topic not in ("", topic):
                continue
            for queue_id, queue_offset in sorted(offsets.items()):
                if not is_wanted():
                    raise StoreClosed("nobody waits for the offsets any more")
                try:
                    low = self._reader.min_offset(topic, queue_id)
                    high = self._reader.max_offset(topic, queue_id)
                except TopicNotFound:
                    low = high = queue_offset
                response.offsets.add(
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    min_offset=low,
                    max_offset=high,
                    lag=max(0, high - queue_offset),
                )
        return response
