"""Records that are read: of a queue, by key, or one by its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.operation import operation, operation_of
from penstock.framing import WithRecords
from penstock.record import Record, Records
from penstock.requests import build, value_of
from penstock.retry import Repeat
from penstock.v1 import common_pb2, reader_pb2
from penstock.values import Damage, PullResult, PullStatus, UncoveredRange

_STATUSES: Final = {
    number: PullStatus[name]
    for name, number in reader_pb2.PullStatus.items()
    if name != "PULL_STATUS_UNSPECIFIED"
}


def pull(
    topic: str,
    queue_id: int,
    offset: int,
    *,
    max_messages: int = 32,
    max_bytes: int = 0,
    tag: str = "",
    wait_ms: int = 0,
    timeout_s: float | None = None,
) -> Call[PullResult]:
    """Read records of one queue from an offset on, waiting up to ``wait_ms`` for the first one.

    ``tag`` is an expression: "" or "*" for all, else tags joined by ``||``. Damaged records do
    not raise: they are in the result's ``damaged``.
    """
    request = build(
        reader_pb2.PullRequest,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_messages=max_messages,
        max_bytes=max_bytes,
        tag_expression=tag,
        wait_ms=wait_ms,
    )
    return Call(wire.PULL, request, pull_result, wait_ms=wait_ms, timeout_s=timeout_s)


def pull_stream(
    topic: str, queue_id: int, offset: int, *, max_bytes: int, tag: str, follow: bool,
    end_offset: int | None = None,
) -> Call[PullResult]:  # fmt: skip
    """Read one queue as a stream of pulls, to ``end_offset`` or its end."""
    request = build(
        reader_pb2.PullStreamRequest,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_bytes=max_bytes,
        tag_expression=tag,
        follow=follow,
        end_offset=end_offset,
    )
    return Call(wire.PULL_STREAM, request, pull_result, repeat=Repeat.NEVER)


@dataclass(frozen=True, slots=True)
class KeyPage:
    """One page of a query by key."""

    records: Records
    damaged: tuple[Damage, ...]
    next_page_token: str
    indexed_offset: int
    uncovered: tuple[UncoveredRange, ...] = ()


def by_key(
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
    return Call(wire.QUERY_BY_KEY, request, _key_page)


class RecordOperations:
    """Records that are read, one call for some."""

    pull = operation_of(pull)

    @operation
    def message(self, message_id: str | int, *, timeout_s: float | None = None) -> Call[Record]:
        """Read one record by its offset message id, or by its commit offset as a number.

        Raises MessageNotFound, or DataLoss if it is damaged.
        """
        named = "message_id" if isinstance(message_id, str) else "commit_offset"
        return Call(
            wire.GET_MESSAGE,
            build(reader_pb2.GetMessageRequest, **{named: message_id}),
            lambda response: Record.from_proto(response.record),
            timeout_s=timeout_s,
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
        damaged=damages(front.damaged),
    )


def _key_page(answer: WithRecords) -> KeyPage:
    front: reader_pb2.QueryByKeyResponse = answer.front
    return KeyPage(
        records=Records(answer.records, front.record_count),
        damaged=damages(front.damaged),
        next_page_token=front.next_page_token,
        indexed_offset=front.indexed_offset,
        uncovered=tuple(value_of(UncoveredRange, each) for each in front.uncovered),
    )


def damages(records: Sequence[common_pb2.DamagedRecord]) -> tuple[Damage, ...]:
    """Return the damaged records of an answer."""
    return tuple(value_of(Damage, each) for each in records)
