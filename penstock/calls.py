"""What each client method asks and what it makes of the answer: the part both clients share.

A `Call` is a request with everything an I/O shell needs to know about it. Operations of several
calls are plans: generators that yield calls, are sent their results, and return a value.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

from penstock import wire
from penstock.errors import (
    DeadlineExceeded,
    InvalidArgument,
    MessageNotFound,
    NotFound,
    PenstockError,
    TopicNotFound,
    from_rpc_error,
    produce_error,
)
from penstock.errors import RpcError as RpcError
from penstock.record import Record, Records
from penstock.requests import FRAME_OVERHEAD_MAX, REQUEST_BYTES_MAX, build, check_size
from penstock.retry import Repeat, RetryPolicy
from penstock.v1 import common_pb2, indexer_pb2, reader_pb2, writer_pb2
from penstock.values import (
    GroupOffset,
    IndexerStatus,
    Message,
    OffsetRange,
    PullResult,
    PullStatus,
    QueueRange,
    ReaderStatus,
    Stored,
    StoredBatch,
    Topic,
    TopicDescription,
    WriterStatus,
)
from penstock.wire import Method, WithRecords
from storage.clock import Clock
from storage.message import Damage

T = TypeVar("T")
Plan = Generator["Call[Any]", Any, T]
Position = Literal["earliest", "latest"] | int | datetime
Boundary = Literal["lower", "upper"]

_STATUSES: Final = {
    number: PullStatus[name]
    for name, number in reader_pb2.PullStatus.items()
    if name != "PULL_STATUS_UNSPECIFIED"
}


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, how to read its answer, and what repeating it could do."""

    method: Method
    request: Any
    interpret: Callable[[Any], T]
    repeat: Repeat = Repeat.SAFE
    not_found: type[NotFound] = NotFound
    wait_ms: int = 0  # how long the service is asked to wait, on top of the timeout

    def error_of(self, error: RpcError) -> PenstockError:
        """Return what a failed attempt is to be raised as."""
        return from_rpc_error(error, not_found=self.not_found)


class Attempts:
    """The attempts of one call within its deadline."""

    def __init__(
        self, call: Call[Any], policy: RetryPolicy, *, timeout_s: float, clock: Clock
    ) -> None:
        self._call = call
        self._policy = policy
        self._clock = clock
        self._began = clock.monotonic()
        self._deadline = self._began + timeout_s + call.wait_ms / 1000
        self._count = 0
        self._previous: PenstockError | None = None

    def remaining_s(self) -> float:
        """Return how much of the deadline is left for the next attempt."""
        return max(0.001, self._deadline - self._clock.monotonic())

    def after(self, error: RpcError) -> float:
        """Return the seconds to wait before another attempt, or raise what the call failed with."""
        failure = self._call.error_of(error)
        elapsed_s = self._clock.monotonic() - self._began
        delay_ms = self._policy.delay_ms(failure, self._call.repeat, self._count, elapsed_s)
        self._count += 1
        if delay_ms is not None and delay_ms / 1000 < self.remaining_s() - 0.001:
            failure.__cause__ = error if isinstance(error, BaseException) else None
            self._previous = failure
            return delay_ms / 1000
        failure.__cause__ = error if isinstance(error, BaseException) else None
        if self._call.repeat is Repeat.DUPLICATES:
            raise produce_error(failure)
        if isinstance(failure, DeadlineExceeded) and self._previous is not None:
            raise self._previous  # says more than that the last attempt had too little time
        raise failure


def produce(
    messages: Sequence[Message], *, bytes_max: int = REQUEST_BYTES_MAX
) -> Call[list[Stored]]:
    """Store messages, all or none. InvalidArgument if they are more than a request may hold."""
    request = writer_pb2.ProduceRequest(messages=[_message(each) for each in messages])
    data = request.SerializeToString()
    check_size("messages", len(data), bytes_max)
    return Call(
        wire.PRODUCE,
        data,
        lambda response: [_stored(each) for each in response.results],
        repeat=Repeat.DUPLICATES,
        not_found=TopicNotFound,
    )


def produce_batch(
    records: bytes | bytearray | memoryview, *, bytes_max: int = REQUEST_BYTES_MAX
) -> Call[StoredBatch]:
    """Store encoded records, all or none. InvalidArgument if they are more than a request may hold."""
    check_size("records", len(records) + FRAME_OVERHEAD_MAX, bytes_max)
    return Call(
        wire.PRODUCE_BATCH,
        records,
        stored_batch,
        repeat=Repeat.DUPLICATES,
        not_found=TopicNotFound,
    )


def pull(
    topic: str,
    *,
    queue_id: int,
    queue_offset: int,
    max_messages: int = 0,
    max_bytes: int = 0,
    tag: str = "",
    wait_ms: int = 0,
) -> Call[PullResult]:
    """Read records of one queue."""
    request = build(
        reader_pb2.PullRequest,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        max_messages=max_messages,
        max_bytes=max_bytes,
        tag_expression=tag,
        wait_ms=wait_ms,
    )
    return Call(wire.PULL, request, pull_result, not_found=TopicNotFound, wait_ms=wait_ms)


def pull_stream(
    topic: str, *, queue_id: int, queue_offset: int, max_bytes: int, tag: str, follow: bool
) -> Call[PullResult]:
    """Read one queue as a stream of pulls."""
    request = build(
        reader_pb2.PullStreamRequest,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        max_bytes=max_bytes,
        tag_expression=tag,
        follow=follow,
    )
    return Call(
        wire.PULL_STREAM, request, pull_result, repeat=Repeat.NEVER, not_found=TopicNotFound
    )


@dataclass(frozen=True, slots=True)
class KeyPage:
    """One page of a query by key."""

    records: Records
    damaged: tuple[Damage, ...]
    next_page_token: str
    indexed_offset: int


def query_by_key(
    topic: str,
    key: str,
    *,
    unique: bool,
    begin_ms: int,
    end_ms: int | None,
    page_size: int,
    page_token: str,
) -> Call[KeyPage]:
    """Find one page of records by a business key or a unique id."""
    request = build(
        reader_pb2.QueryByKeyRequest,
        topic=topic,
        key=key,
        unique=unique,
        begin_timestamp_ms=begin_ms,
        end_timestamp_ms=end_ms,
        max_messages=page_size,
        page_token=page_token,
    )
    return Call(wire.QUERY_BY_KEY, request, _key_page, not_found=TopicNotFound)


def message(message_id: str | int) -> Call[Record]:
    """Read one record by its offset message id (text) or its commit offset (number)."""
    if isinstance(message_id, str):
        request = build(reader_pb2.GetMessageRequest, message_id=message_id)
    else:
        request = build(reader_pb2.GetMessageRequest, commit_offset=message_id)
    return Call(
        wire.GET_MESSAGE,
        request,
        lambda response: Record.from_proto(response.record),
        not_found=MessageNotFound,
    )


def offset(
    topic: str, *, queue_id: int, position: Position, boundary: Boundary = "lower"
) -> Call[OffsetRange]:
    """Ask for a queue's earliest or latest offset, or the one at a time."""
    if position == "earliest":
        wanted, time_ms = reader_pb2.EARLIEST, None
    elif position == "latest":
        wanted, time_ms = reader_pb2.LATEST, None
    elif isinstance(position, str):
        raise InvalidArgument(
            f"{position!r} is no position: give 'earliest', 'latest', a number or a datetime"
        )
    else:
        wanted = reader_pb2.TIME_LOWER if boundary == "lower" else reader_pb2.TIME_UPPER
        time_ms = timestamp_ms(position)
    request = build(
        reader_pb2.QueryOffsetRequest,
        topic=topic,
        queue_id=queue_id,
        position=wanted,
        timestamp_ms=time_ms,
    )
    return Call(
        wire.QUERY_OFFSET,
        request,
        lambda answer: OffsetRange(
            queue_offset=answer.queue_offset,
            min_offset=answer.min_offset,
            max_offset=answer.max_offset,
        ),
        not_found=TopicNotFound,
    )


def commit_offset(group: str, topic: str, *, queue_id: int, queue_offset: int) -> Call[None]:
    """Record how far a group came; ``queue_offset`` is the next one to consume."""
    request = build(
        reader_pb2.CommitOffsetRequest,
        group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
    )
    return Call(wire.COMMIT_OFFSET, request, lambda _: None, not_found=TopicNotFound)


def offsets(group: str, topic: str) -> Call[list[GroupOffset]]:
    """Ask how far a group came; ``topic`` "" means all of its topics."""
    return Call(
        wire.FETCH_OFFSETS,
        build(reader_pb2.FetchOffsetsRequest, group=group, topic=topic),
        lambda response: [
            GroupOffset(
                topic=each.topic,
                queue_id=each.queue_id,
                queue_offset=each.queue_offset,
                min_offset=each.min_offset,
                max_offset=each.max_offset,
                lag=each.lag,
            )
            for each in response.offsets
        ],
        not_found=TopicNotFound,
    )


def groups() -> Call[list[str]]:
    """Ask for the names of all consumer groups."""
    return Call(
        wire.LIST_GROUPS, reader_pb2.ListGroupsRequest(), lambda answer: list(answer.groups)
    )


def create_topic(name: str, *, queue_count: int, attributes: Mapping[str, str]) -> Call[Topic]:
    """Create a topic; a repeat would find it there."""
    request = build(
        writer_pb2.CreateTopicRequest,
        name=name,
        queue_count=queue_count,
        attributes=dict(attributes),
    )
    return Call(wire.CREATE_TOPIC, request, _topic, repeat=Repeat.NEVER)


def update_topic(
    name: str, *, queue_count: int | None, perm: int | None, attributes: Mapping[str, str]
) -> Call[Topic]:
    """Set what is given; doing so twice sets the same."""
    request = build(
        writer_pb2.UpdateTopicRequest,
        name=name,
        queue_count=queue_count,
        perm=perm,
        attributes=dict(attributes),
    )
    return Call(wire.UPDATE_TOPIC, request, _topic, not_found=TopicNotFound)


def delete_topic(name: str) -> Call[None]:
    """Delete a topic; a repeat would not find it."""
    request = build(writer_pb2.DeleteTopicRequest, name=name)
    return Call(
        wire.DELETE_TOPIC,
        request,
        lambda _: None,
        repeat=Repeat.NEVER,
        not_found=TopicNotFound,
    )


def describe_topic(name: str) -> Call[TopicDescription]:
    """Ask for a topic and its queues' offsets."""
    return Call(
        wire.DESCRIBE_TOPIC,
        build(writer_pb2.DescribeTopicRequest, name=name),
        lambda answer: TopicDescription(
            topic=_topic(answer.topic),
            queues={each.queue_id: (each.min_offset, each.max_offset) for each in answer.queues},
        ),
        not_found=TopicNotFound,
    )


def topics() -> Call[list[Topic]]:
    """Ask for all topics."""
    return Call(
        wire.LIST_TOPICS,
        writer_pb2.ListTopicsRequest(),
        lambda answer: [_topic(each) for each in answer.topics],
    )


def writer_status() -> Call[WriterStatus]:
    """Ask for the writer's positions."""
    return Call(wire.WRITER_STATUS, writer_pb2.GetWriterStatusRequest(), _plain(WriterStatus))


def reader_status() -> Call[ReaderStatus]:
    """Ask what the reader sees."""
    return Call(wire.READER_STATUS, reader_pb2.GetReaderStatusRequest(), _plain(ReaderStatus))


def indexer_status() -> Call[IndexerStatus]:
    """Ask how far the index is."""
    return Call(wire.INDEXER_STATUS, indexer_pb2.GetIndexerStatusRequest(), _plain(IndexerStatus))


def wait_indexed(commit_offset: int) -> Call[IndexerStatus]:
    """Wait until the index has every record before the commit offset."""
    request = build(indexer_pb2.WaitIndexedRequest, commit_offset=commit_offset)
    return Call(wire.WAIT_INDEXED, request, _plain(IndexerStatus))


def timestamp_ms(time: int | datetime) -> int:
    """Return Unix milliseconds; a number is them already, a naive datetime is local time."""
    if isinstance(time, datetime):
        return int(time.timestamp() * 1000)
    if not isinstance(time, int):
        raise InvalidArgument(f"{time!r} is no time: give a datetime or Unix milliseconds")
    return time


def stored_batch(answer: writer_pb2.ProduceBatchResponse) -> StoredBatch:
    """Return where a record batch went."""
    return StoredBatch(
        commit_offset=answer.commit_offset,
        end_commit_offset=answer.end_commit_offset,
        record_count=answer.record_count,
        store_timestamp_ms=answer.store_timestamp_ms,
        ranges=tuple(
            QueueRange(
                topic=each.topic,
                queue_id=each.queue_id,
                first_queue_offset=each.first_queue_offset,
                count=each.count,
            )
            for each in answer.ranges
        ),
    )


def pull_result(answer: WithRecords) -> PullResult:
    """Return a pull's answer around the raw records."""
    front: reader_pb2.PullResponse = answer.front
    return PullResult(
        status=_STATUSES[front.status],
        next_offset=front.next_offset,
        min_offset=front.min_offset,
        max_offset=front.max_offset,
        records=Records(answer.records, front.record_count),
        damaged=_damaged(front.damaged),
    )


def _key_page(answer: WithRecords) -> KeyPage:
    front: reader_pb2.QueryByKeyResponse = answer.front
    return KeyPage(
        records=Records(answer.records, front.record_count),
        damaged=_damaged(front.damaged),
        next_page_token=front.next_page_token,
        indexed_offset=front.indexed_offset,
    )


def _damaged(records: Sequence[common_pb2.DamagedRecord]) -> tuple[Damage, ...]:
    return tuple(
        Damage(
            queue_offset=each.queue_offset,
            commit_offset=each.commit_offset,
            size=each.size,
            reason=each.reason,
        )
        for each in records
    )


def _message(message: Message) -> common_pb2.Message:
    return build(
        common_pb2.Message,
        topic=message.topic,
        body=message.body,
        keys=message.keys,
        tag=message.tag,
        properties=dict(message.properties),
        queue_id=message.queue_id,
        unique_key=message.unique_key,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        delay_level=message.delay_level,
    )


def _stored(result: writer_pb2.ProduceResult) -> Stored:
    return Stored(
        topic=result.topic,
        queue_id=result.queue_id,
        queue_offset=result.queue_offset,
        commit_offset=result.commit_offset,
        store_timestamp_ms=result.store_timestamp_ms,
        message_id=result.message_id,
        unique_key=result.unique_key,
    )


def _topic(topic: common_pb2.Topic) -> Topic:
    return Topic(
        name=topic.name,
        read_queue_count=topic.read_queue_count,
        write_queue_count=topic.write_queue_count,
        perm=topic.perm,
        attributes=dict(topic.attributes),
    )


def _plain(kind: type[T]) -> Callable[[Any], T]:
    """Return a reader of answers whose fields are the value's fields, name by name."""
    names = tuple(kind.__dataclass_fields__)  # type: ignore[attr-defined]

    def interpret(answer: Any) -> T:
        return kind(**{name: getattr(answer, name) for name in names})

    return interpret
