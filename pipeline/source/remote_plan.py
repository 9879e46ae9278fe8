"""What a read of the store behind a reader service has to do: ranges of queues, cut for tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.source.options import ReadOptions
from pipeline.source.pieces import Piece, RemotePiece, tasks_of
from pipeline.source.points import QueueBounds, resolve_point
from pipeline.source.remote import Endpoint, Listing, RemoteQueue
from pipeline.source.selecting import select
from storage.view.queues.record_queues import QueueKey


def open_endpoint(options: ReadOptions, *, known: bool = False) -> Endpoint:
    """Return the endpoint that the options name; ``known`` if it has answered before."""
    assert options.endpoint is not None
    return Endpoint(
        options.endpoint, options.endpoint_timeout_ms / 1e3, known=known, tls=options.tls
    )


def by_key(listing: Listing) -> dict[QueueKey, RemoteQueue]:
    """Return the queues by topic and queue id."""
    return {(queue.topic, queue.queue_id): queue for queue in listing.queues}


def plan_endpoint(options: ReadOptions) -> list[tuple[Piece, ...]]:
    """Plan a batch read: each element is what one task does."""
    with open_endpoint(options) as endpoint:
        listing = endpoint.list_queues(options.selection.topics)
        chosen = select(by_key(listing), listing.topics, options.selection, endpoint.address)
        ranges = []
        for queue in chosen:
            begin = _resolve(endpoint, queue, options, start=True)
            end = _resolve(endpoint, queue, options, start=False)
            if begin < end:
                ranges.append((queue, begin, end))
        address = endpoint.address
        return tasks_of(
            lambda size: (
                piece
                for queue, begin, end in ranges
                for piece in pieces_of(address, queue, begin, end, size)
            ),
            options,
        )


def _resolve(endpoint: Endpoint, queue: RemoteQueue, options: ReadOptions, *, start: bool) -> int:
    return resolve_point(
        QueueBounds(queue.topic, queue.queue_id, queue.begin, queue.end),
        options.start if start else options.end,
        options,
        lambda time: endpoint.offset_at_time(queue.topic, queue.queue_id, time),
        start=start,
    )


def mean_size(queue: RemoteQueue) -> float:
    """Estimate the bytes of one record, 1 at least."""
    return max(1.0, queue.approximate_bytes / max(1, queue.end - queue.begin))


def pieces_of(
    address: str, queue: RemoteQueue, begin: int, end: int, piece_bytes: int
) -> Iterator[RemotePiece]:
    """Cut offsets ``[begin, end)`` of a queue into pieces of about ``piece_bytes``."""
    mean = mean_size(queue)
    step = max(1, int(piece_bytes / mean))
    for first in range(begin, end, step):
        last = min(first + step, end)
        cost = int((last - first) * mean)
        yield RemotePiece(address, queue.topic, queue.queue_id, first, last, cost)


def queue_table(options: ReadOptions) -> dict[str, Any]:
    """Return the columns of the table ``queues``."""
    with open_endpoint(options) as endpoint:
        queues = sorted(endpoint.list_queues().queues)
    return {
        "topic": [queue.topic for queue in queues],
        "queueId": [queue.queue_id for queue in queues],
        "minOffset": [queue.begin for queue in queues],
        "maxOffset": [queue.end for queue in queues],
        "messages": [queue.end - queue.begin for queue in queues],
        "minPhysicalOffset": [queue.commit_begin for queue in queues],
        "maxPhysicalOffset": [queue.commit_end for queue in queues],
    }
