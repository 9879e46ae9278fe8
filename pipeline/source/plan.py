"""What a batch read of messages has to do, by its options: each element of a plan is one task's."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.source.options import EARLIEST, LATEST, Point, ReadOptions, open_store
from pipeline.source.pieces import Piece, tasks_of
from pipeline.source.points import QueueBounds, resolve_point
from pipeline.source.remote_plan import plan_endpoint
from pipeline.source.selecting import select
from storage.view.store_plan import PlannedRange, Queue, StorePlan


def plan_messages(options: ReadOptions) -> list[tuple[Piece, ...]]:
    """Plan a batch read. Small pieces share a task."""
    if options.endpoint:
        return plan_endpoint(options)
    plans = [StorePlan(open_store(store)) for store in options.stores]
    return tasks_of(
        lambda size: (piece for plan in plans for piece in pieces_of(plan, options, size)), options
    )


def pieces_of(plan: StorePlan, options: ReadOptions, piece_bytes: int) -> Iterator[Piece]:
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
    else:
        yield from plan.range_pieces(ranges_of(plan, options), piece_bytes)


def ranges_of(plan: StorePlan, options: ReadOptions) -> list[PlannedRange]:
    """Return the chosen range of each chosen queue that has one. Raises InvalidOption, DataLost."""
    found = []
    for queue in select(plan.queues, plan.topics, options.selection, str(plan.store)):
        begin = _resolve(plan, queue, options.start, options, start=True)
        end = _resolve(plan, queue, options.end, options, start=False)
        if begin < end:
            found.append(PlannedRange(queue, begin, end))
    return found


def _resolve(
    plan: StorePlan, queue: Queue, point: Point, options: ReadOptions, *, start: bool
) -> int:
    return resolve_point(
        QueueBounds(queue.topic, queue.queue_id, queue.begin, queue.end),
        point,
        options,
        lambda time: plan.offset_at_time(queue, time),
        start=start,
    )
