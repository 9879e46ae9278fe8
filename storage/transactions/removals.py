"""Op records: they say which half messages are ended. Each names queue offsets of the half queue.

The body is a broker's: decimal queue offsets, each with a comma after it. The property of ours that says how
they ended is ignored by a broker::

    TAGS    d
    WAIT    true
    ended   commit, rollback, given-up or again (stored again for a check)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from storage.format.names import HALF_REMOVAL_TOPIC
from storage.format.properties import TAGS, WAIT, encode_properties
from storage.format.record import Record, encode_for_batch

REMOVAL_TAG: Final = "d"
BODY_SIZE_MAX: Final = 4_096  # as a broker gathers them
_OFFSET_SIZE_MAX: Final = 20
_OFFSETS_MAX: Final = BODY_SIZE_MAX // _OFFSET_SIZE_MAX
_ENDED: Final = "ended"


class HalfEnd(StrEnum):
    """How half messages ended."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    GIVEN_UP = "given-up"
    AGAIN = "again"


_ENDS: Final = {end.value: end for end in HalfEnd}


def removal_records(
    queue_offsets: Sequence[int], end: HalfEnd, *, now_ms: int, host: str
) -> Iterator[bytes]:
    """Yield op records for half messages, as they go into a batch."""
    block = encode_properties({TAGS: REMOVAL_TAG, WAIT: "true", _ENDED: end.value})
    for begin in range(0, len(queue_offsets), _OFFSETS_MAX):
        body = "".join(f"{offset}," for offset in queue_offsets[begin : begin + _OFFSETS_MAX])
        yield encode_for_batch(
            HALF_REMOVAL_TOPIC, 0, body.encode(), block, 0, 0, now_ms, host, False
        )


def removed_offsets(body: bytes) -> list[int]:
    """Return the queue offsets that an op record's body names; of a body that is not a broker's, none."""
    parts = body.split(b",")
    if any(part and not part.isdigit() for part in parts):
        return []
    return [int(part) for part in parts if part and len(part) < _OFFSET_SIZE_MAX - 1]


def end_of(record: Record) -> HalfEnd | None:
    """Return how the half messages of an op record ended; None if a broker wrote it."""
    return _ENDS.get(record.properties.get(_ENDED, ""))
