"""Offsets of queues, of times, and of consumer groups."""

from __future__ import annotations

from datetime import datetime
from numbers import Integral
from typing import Any, Final, Literal, TypeGuard

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.operation import operation, operation_of
from penstock.errors import InvalidArgument
from penstock.requests import build, each, nothing, value
from penstock.v1 import reader_pb2
from penstock.values import GroupOffset, OffsetRange
from storage.clock import unix_ms

Position = Literal["earliest", "latest"] | int | datetime
Boundary = Literal["lower", "upper"]
_ENDS: Final = {"earliest": reader_pb2.EARLIEST, "latest": reader_pb2.LATEST}
_NUMBER_MAX: Final = (1 << 63) - 1  # of an offset or a time


def offset(
    topic: str,
    queue_id: int,
    position: Position = "latest",
    *,
    boundary: Boundary = "lower",
    timeout_s: float | None = None,
) -> Call[OffsetRange]:
    """Return the earliest or latest offset of a queue, or the one at a time.

    A time (Unix milliseconds or datetime) gives the first record stored at or after it, with
    ``boundary="upper"`` the last one stored at or before it.
    """
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
    return Call(wire.QUERY_OFFSET, request, value(OffsetRange), timeout_s=timeout_s)


def commit_offset(
    group: str, topic: str, queue_id: int, offset: int, *, timeout_s: float | None = None
) -> Call[None]:
    """Record that a group consumed a queue up to, not including, ``offset``."""
    request = build(
        reader_pb2.CommitOffsetRequest,
        group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
    )
    return Call(wire.COMMIT_OFFSET, request, nothing, timeout_s=timeout_s)


def offsets(
    group: str, topic: str = "", *, timeout_s: float | None = None
) -> Call[list[GroupOffset]]:
    """Return how far a group came, in one topic or in all of its topics."""
    request = build(reader_pb2.FetchOffsetsRequest, group=group, topic=topic)
    return Call(wire.FETCH_OFFSETS, request, each(GroupOffset, "offsets"), timeout_s=timeout_s)


class OffsetOperations:
    """Offsets of queues and of consumer groups."""

    offset = operation_of(offset)
    commit_offset = operation_of(commit_offset)
    offsets = operation_of(offsets)

    @operation
    def groups(self, *, timeout_s: float | None = None) -> Call[list[str]]:
        """Return the names of all consumer groups."""
        request = reader_pb2.ListGroupsRequest()
        return Call(
            wire.LIST_GROUPS, request, lambda answer: list(answer.groups), timeout_s=timeout_s
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
