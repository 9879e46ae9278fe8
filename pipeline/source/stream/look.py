"""What a stream sees of a store, wherever it is: how far each queue goes.

A stream keeps one offset for each queue, or one for the whole log, counted in commit offsets: that is
taken as a queue by the key ``WHOLE_LOG``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

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
