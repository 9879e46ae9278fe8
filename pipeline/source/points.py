"""What a start or an end that was asked for means for one queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pipeline.errors import DataLost, InvalidOption
from pipeline.source.options import EARLIEST, LATEST, Point, ReadOptions


class QueueBounds(NamedTuple):
    """Queue offsets ``[begin, end)`` of one queue can be read."""

    topic: str
    queue_id: int
    begin: int
    end: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic!r}"


def resolve_point(
    queue: QueueBounds,
    point: Point,
    options: ReadOptions,
    offset_at_time: Callable[[int], int | None],
    *,
    start: bool,
) -> int:
    """Return the queue offset that a point means.

    ``offset_at_time`` returns the first offset stored at or after a time, None if all are older.
    Raises InvalidOption, or DataLost for a start that has been removed.
    """
    wanted = point.of(queue.topic, queue.queue_id)
    if wanted == EARLIEST:
        return queue.begin
    if wanted == LATEST:
        return queue.end
    if point.is_time:
        found = offset_at_time(wanted)
        if found is None and start and options.strategy == "error" and queue.end > queue.begin:
            raise InvalidOption(
                point.option,
                f"{queue} has nothing stored at or after {wanted}; choose an earlier time, or"
                " startingOffsetsByTimestampStrategy=latest",
            )
        return queue.end if found is None else found
    if wanted > queue.end:
        raise InvalidOption(
            point.option, f"{queue} ends at offset {queue.end}; {wanted} is not there yet"
        )
    if wanted < queue.begin:
        if options.fail_on_data_loss and start:
            raise DataLost(
                f"option {point.option!r}: offset {wanted} of {queue} has been removed; the"
                f" oldest is {queue.begin}. Start there, or set failOnDataLoss=false to go on"
                " from the oldest"
            )
        return queue.begin
    return wanted
