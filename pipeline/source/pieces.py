"""What tasks read: pieces of stores and of queues behind a reader service, packed into tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

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


class Costed(Protocol):
    """Work of which is known how much it is."""

    @property
    def cost(self) -> int:
        """About how many bytes are read."""
        ...


Work = TypeVar("Work", bound=Costed)


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


def pack(pieces: Iterable[Work], task_bytes: int) -> list[tuple[Work, ...]]:
    """Put neighbours into one task while they fit; a task costs about 50 ms however small."""
    tasks: list[tuple[Work, ...]] = []
    current: list[Work] = []
    cost = 0
    for piece in pieces:
        if current and cost + piece.cost > task_bytes:
            tasks.append(tuple(current))
            current, cost = [], 0
        current.append(piece)
        cost += piece.cost
    if current:
        tasks.append(tuple(current))
    return tasks
