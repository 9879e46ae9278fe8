"""Calls about offsets: of a queue, of a time, and of consumer groups."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from penstock import wire
from penstock.calls.call import Call
from penstock.errors import InvalidArgument, TopicNotFound
from penstock.requests import build
from penstock.v1 import reader_pb2
from penstock.values import GroupOffset, OffsetRange

Position = Literal["earliest", "latest"] | int | datetime
Boundary = Literal["lower", "upper"]


def find(
    topic: str, *, queue_id: int, position: Position, boundary: Boundary = "lower"
) -> Call[OffsetRange]:
    """Ask for a queue's earliest or latest offset, or the one at a time."""
    if position == "earliest":
        wanted, time_ms = reader_pb2.EARLIEST, None
    elif position == "latest":
        wanted, time_ms = reader_pb2.LATEST, None
    elif isinstance(position, str):
        raise InvalidArgument(
            f"{position!r} is not a position: give 'earliest', 'latest', a number or a datetime"
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


def commit(group: str, topic: str, *, queue_id: int, queue_offset: int) -> Call[None]:
    """Record how far a group came; ``queue_offset`` is the next one to consume."""
    request = build(
        reader_pb2.CommitOffsetRequest,
        group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
    )
    return Call(wire.COMMIT_OFFSET, request, lambda _: None, not_found=TopicNotFound)


def of_group(group: str, topic: str) -> Call[list[GroupOffset]]:
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


def timestamp_ms(time: int | datetime) -> int:
    """Return Unix milliseconds; a number is them already, a naive datetime is local time."""
    if isinstance(time, datetime):
        return int(time.timestamp() * 1000)
    if not isinstance(time, int):
        raise InvalidArgument(f"{time!r} is not a time: give a datetime or Unix milliseconds")
    return time
