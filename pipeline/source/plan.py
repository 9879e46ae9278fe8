"""What a batch read of messages has to do, by its options: each element of a plan is one task's."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.source.options import EARLIEST, LATEST, ReadOptions, open_store
from pipeline.source.pieces import Piece, tasks_of
from pipeline.source.remote import Endpoint
from pipeline.source.selection import range_of, select
from storage.view.store_plan import PlannedRange, StorePlan


def plan_messages(options: ReadOptions) -> list[tuple[Piece, ...]]:
    """Plan a batch read. Small pieces share a task. Raises InvalidOption, DataLost."""
    if options.endpoint:
        return _plan_endpoint(options)
    plans = [StorePlan(open_store(store)) for store in options.stores]
    return tasks_of(
        lambda size: (piece for plan in plans for piece in _pieces_of(plan, options, size)), options
    )


def _pieces_of(plan: StorePlan, options: ReadOptions, piece_bytes: int) -> Iterator[Piece]:
    """Cut the read of a store into pieces of about ``piece_bytes``."""
    whole_log = (
        options.selection.is_everything
        and options.start.everywhere == EARLIEST
        and options.end.everywhere == LATEST
        and not options.start.is_time
    )
    if whole_log:
        low, high, _ = plan.bounds
        yield from plan.log_pieces(low, high, piece_bytes, None, with_lost=True)
        return
    ranges = []
    for queue in select(plan.queues, plan.topics, options.selection, str(plan.store)):
        begin, end = range_of(queue, options, lambda time: plan.offset_at_time(queue, time))  # noqa: B023
        if begin < end:
            ranges.append(PlannedRange(queue, begin, end))
    yield from plan.range_pieces(ranges, piece_bytes)


def _plan_endpoint(options: ReadOptions) -> list[tuple[Piece, ...]]:
    with Endpoint(options) as endpoint:
        listing = endpoint.list_queues(options.selection.topics)
        chosen = select(listing.queues, listing.topics, options.selection, endpoint.address)
        ranges = [
            (
                queue,
                *range_of(
                    queue,
                    options,
                    lambda time: endpoint.offset_at_time(queue.topic, queue.queue_id, time),  # noqa: B023
                ),
            )
            for queue in chosen
        ]
    return tasks_of(
        lambda size: (
            piece
            for queue, begin, end in ranges
            for piece in queue.pieces(endpoint.address, begin, end, size)
        ),
        options,
    )
