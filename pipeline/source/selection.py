"""Which queues a read selects, and where in each it begins and ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol, TypeVar

from pipeline.errors import DataLost, InvalidOption, unknown_topic
from pipeline.source.options import EARLIEST, LATEST, Point, ReadOptions, Selection


class HasRange(Protocol):
    """A queue of a store or of a reader service: offsets ``[begin, end)`` can be read."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...


Q = TypeVar("Q", bound=HasRange)


def wants(chosen: Selection, topic: str, queue_id: int) -> bool:
    """Return whether a queue is chosen, one that is there or that comes later."""
    if chosen.pattern is not None:
        return re.fullmatch(chosen.pattern, topic) is not None
    if chosen.assigned is not None:
        return queue_id in chosen.assigned.get(topic, ())
    return chosen.is_everything or topic in chosen.topics


def check_topics(chosen: Selection, known: Collection[str], where: str) -> None:
    """Raise InvalidOption for a chosen topic that a store does not know.

    Of a stream: a pattern may wait for topics to come; an assigned queue, for its first message.
    """
    option, topics = "subscribe", chosen.topics
    if chosen.assigned is not None:
        option, topics = "assign", tuple(chosen.assigned)
    for topic in topics:
        if topic not in known:
            problem = unknown_topic(where, topic, known)
            raise InvalidOption(option, f"{problem}. To wait for one to come, use subscribePattern")


def select(
    queues: Mapping[tuple[str, int], Q], topics: Collection[str], chosen: Selection, where: str
) -> list[Q]:
    """Return the chosen queues of a store; ``topics`` are those that it knows, with queues or not.

    Raises InvalidOption for a topic or queue that does not exist; ``where`` names the store.
    """
    if chosen.pattern is not None:
        matches = [queue for queue in queues.values() if re.fullmatch(chosen.pattern, queue.topic)]
        if not matches and not any(re.fullmatch(chosen.pattern, name) for name in topics):
            problem = unknown_topic(where, chosen.pattern, topics, "matches")
            raise InvalidOption("subscribePattern", problem)
        return matches
    if chosen.assigned is not None:
        wanted = [(topic, i) for topic, ids in chosen.assigned.items() for i in ids]
        for topic, queue_id in wanted:
            if (topic, queue_id) not in queues:
                raise InvalidOption("assign", f"{where}: topic {topic!r} has no queue {queue_id}")
        return [queues[key] for key in wanted]
    for topic in chosen.topics:
        if topic not in topics:
            raise InvalidOption("subscribe", unknown_topic(where, topic, topics))
    return [
        queue for queue in queues.values() if chosen.is_everything or queue.topic in chosen.topics
    ]


class QueueBounds(NamedTuple):
    """Queue offsets ``[begin, end)`` of one queue can be read."""

    topic: str
    queue_id: int
    begin: int
    end: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic!r}"


def range_of(
    queue: HasRange, options: ReadOptions, offset_at_time: Callable[[int], int | None]
) -> tuple[int, int]:
    """Return the queue offsets between which a batch reads; see ``resolve_point``."""
    bounds = QueueBounds(queue.topic, queue.queue_id, queue.begin, queue.end)
    return (
        resolve_point(bounds, options.start, options, offset_at_time, start=True),
        resolve_point(bounds, options.end, options, offset_at_time, start=False),
    )


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
