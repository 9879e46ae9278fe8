"""What a stream asks of a store, wherever it is: how far each queue goes, and pieces to read.

A stream keeps one offset for each queue, or one for the whole log, counted in commit offsets: that is
taken as a queue by the key ``WHOLE_LOG``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from pipeline.source.pieces import Piece
from storage.view.queues.record_queues import QueueKey

WHOLE_LOG: Final[QueueKey] = ("", -1)


def queue_text(key: QueueKey) -> str:
    """Return what a message calls a queue."""
    return "the log" if key == WHOLE_LOG else f"queue {key[1]} of topic {key[0]!r}"


class Span(NamedTuple):
    """Offsets ``[begin, end)`` of a queue."""

    begin: int
    end: int


@dataclass(frozen=True)
class Look:
    """A store at one moment. ``store_id`` is None for a store that no writer of ours has named.

    ``incarnations`` has those of the topics that were deleted before, None where deletions are not known.
    """

    store_id: str | None
    spans: Mapping[QueueKey, Span]
    incarnations: Mapping[str, int] | None = None


class LogView(Protocol):
    """One store as a stream sees it, in the driver; one thread at a time.

    Every offset that a method takes lies within the last look. Methods raise NotAStore when the store
    is gone.
    """

    @property
    def name(self) -> str:
        """What offsets are recorded under, and messages name."""
        ...

    def look(self) -> Look:
        """Return what can be read now: the same object, for next to nothing, while nothing changed."""
        ...

    def check_selection(self) -> None:
        """Raise InvalidOption if a topic or queue was chosen that does not exist."""
        ...

    def offset_at_time(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """Return the first offset stored at or after a time, None if all are older."""
        ...

    def stored_at(self, key: QueueKey, offset: int) -> int:
        """Return when the record at an offset was stored, in Unix milliseconds, about."""
        ...

    def bytes_of(self, key: QueueKey, span: Span) -> int:
        """Estimate the bytes of the records of a span."""
        ...

    def after_records(self, key: QueueKey, span: Span, count: int) -> int:
        """Return the offset after the first ``count`` records of a span, or its end."""
        ...

    def after_bytes(self, key: QueueKey, span: Span, size: int) -> tuple[int, int]:
        """Return the offset after the first records that fit into ``size`` bytes, and what they take.

        May be none; one that begins within the size may count as fitting.
        """
        ...

    def pieces(self, spans: Mapping[QueueKey, Span], piece_bytes: int) -> Iterator[Piece]:
        """Cut spans into pieces of about ``piece_bytes`` for tasks."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...
