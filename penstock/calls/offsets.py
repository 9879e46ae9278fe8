"""Calls about offsets: of a queue, of a time, and of consumer groups."""

from __future__ import annotations

from datetime import datetime
from numbers import Integral
from typing import Any, Final, Literal, TypeGuard

from penstock import wire
from penstock.calls.call import Call
from penstock.errors import InvalidArgument
from penstock.requests import build, value_of
from penstock.v1 import reader_pb2
from penstock.values import GroupOffset, OffsetRange
from storage.clock import unix_ms

Position = Literal["earliest", "latest"] | int | datetime
Boundary = Literal["lower", "upper"]
_ENDS: Final = {"earliest": reader_pb2.EARLIEST, "latest": reader_pb2.LATEST}
_NUMBER_MAX: Final = (1 << 63) - 1  # of an offset or a time


def find(
    topic: str, *, queue_id: int, position: Position, boundary: Boundary = "lower"
) -> Call[OffsetRange]:
    """Ask for a queue's earliest or latest offset, or the one at a time."""
    if isinstance(position, str) and position in _ENDS:
        wanted, time_ms = _ENDS[position], None
    elif isinstance(position, str):
        raise InvalidArgument(
            f"position: {position!r} is not a position: give 'earliest', 'latest', Unix milliseconds or a datetime",
            field="position",
        )
    else:
        wanted = reader_pb2.TIME_LOWER if boundary == "lower" else reader_pb2.TIME_UPPER
        time_ms = timestamp_ms(position, field="position")
    request = build(
        reader_pb2.QueryOffsetRequest,
        topic=topic,
        queue_id=queue_id,
        position=wanted,
        timestamp_ms=time_ms,
    )
    return Call(wire.QUERY_OFFSET, request, lambda answer: value_of(OffsetRange, answer))


def commit(group: str, topic: str, *, queue_id: int, queue_offset: int) -> Call[None]:
    """Record how far a group came; ``queue_offset`` is the next one to consume."""
    request = build(
        reader_pb2.CommitOffsetRequest,
        group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
    )
    return Call(wire.COMMIT_OFFSET, request, lambda _: None)


def of_group(group: str, topic: str) -> Call[list[GroupOffset]]:
    """Ask how far a group came; ``topic`` "" means all of its topics."""
    return Call(
        wire.FETCH_OFFSETS,
        build(reader_pb2.FetchOffsetsRequest, group=group, topic=topic),
        lambda answer: [value_of(GroupOffset, each) for each in answer.offsets],
    )


def groups() -> Call[list[str]]:
    """Ask for the names of all consumer groups."""
    return Call(
        wire.LIST_GROUPS, reader_pb2.ListGroupsRequest(), lambda answer: list(answer.groups)
    )


def checked_start(start: Position) -> Position:
    """Return a consumer's start: earliest, latest, a queue offset, or a time. Raises InvalidArgument."""
    if isinstance(start, datetime):
        timestamp_ms(start, field="start")
        return start
    if _is_number(start) and 0 <= start <= _NUMBER_MAX:
        return int(start)
    if isinstance(start, str) and start in _ENDS:
        return start
    raise InvalidArgument(
        f"start: {start!r:.100} is not a position: give 'earliest', 'latest', an offset from 0 on, or a datetime",
        field="start",
    )


def timestamp_ms(time: int | datetime, *, field: str) -> int:
    """Return Unix milliseconds; a number is them already, a naive datetime is local time. Raises InvalidArgument."""
    if isinstance(time, datetime):
        try:
            return unix_ms(time)
        except ValueError as error:
            raise InvalidArgument(f"{field}: {error}", field=field) from error
    if not _is_number(time):
        raise InvalidArgument(
            f"{field}: {time!r:.100} is not a time: give a datetime or Unix milliseconds",
            field=field,
        )
    if time < 0:
        raise InvalidArgument(f"{field}: {time} is a time before 1970", field=field)
    if time > _NUMBER_MAX:
        raise InvalidArgument(f"{field}: the latest time is {_NUMBER_MAX} ms", field=field)
    return int(time)


def _is_number(value: Any) -> TypeGuard[int]:
    """Whether it is an integer, of numpy too; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)
