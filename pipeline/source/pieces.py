"""What tasks read: pieces of stores and of queues behind a reader service, packed into tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from storage.view.pieces import LogPiece, QueuePiece

if TYPE_CHECKING:
    from pipeline.source.options import ReadOptions


@dataclass(frozen=True)
class RemotePiece:
    """Queue offsets ``[begin, end)`` of one queue of the store that a reader service serves."""

    store: str
    topic: str
    queue_id: int
    begin: int
    end: int
    cost: int


Piece = LogPiece | QueuePiece | RemotePiece


Work = TypeVar("Work")


def cost_of(item: Any) -> int:
    """Return about how many bytes an item makes a task read."""
    cost: int = item.cost
    return cost


def tasks_of(
    pieces: Callable[[int], Iterable[Piece]], options: ReadOptions
) -> list[tuple[Piece, ...]]:
    """Pack the pieces of about a given size into tasks, of a smaller one where that makes too few."""
    packed = pack(pieces(options.max_partition_bytes), options.max_partition_bytes)
    if 0 < len(packed) < options.min_partitions:
        total = sum(piece.cost for task in packed for piece in task)
        smaller = max(1, total // options.min_partitions)
        packed = pack(pieces(smaller), smaller)
    return packed


def pack(
    items: Iterable[Work], task_bytes: int, *, cost: Callable[[Work], int] = cost_of
) -> list[tuple[Work, ...]]:
    """Put neighbours into one task while they fit.

    A task costs Spark some 50 ms however small it is, as long as it takes to walk 100 MiB of log.
    """
    tasks: list[tuple[Work, ...]] = []
    current: list[Work] = []
    taken = 0
    for item in items:
        size = cost(item)
        if current and taken + size > task_bytes:
            tasks.append(tuple(current))
            current, taken = [], 0
        current.append(item)
        taken += size
    if current:
        tasks.append(tuple(current))
    return tasks
