"""One request of a producer on its way into the log, and the check that it is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from storage.errors import OutcomeForgotten
from storage.format.producers.sequence import (
    PRODUCER_ID_MAX,
    SEQUENCE_MAX,
    SEQUENCE_PROPERTY_SIZE,
)
from storage.format.properties import PROPERTIES_SIZE_MAX
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.kernels.columns import PROPERTIES_LENGTH
from storage.message import ProducerSequence

if TYPE_CHECKING:
    from storage.format.producers.windows import Parts
    from storage.log.batches import Prepared
    from storage.producers.windows import ProducerWindows

TOLD_SIZE_MAX: Final = PROPERTIES_SIZE_MAX - SEQUENCE_PROPERTY_SIZE - PROPERTY_CRC_SIZE - 1


class StoredAlready(Exception):
    """A request is in the log already, or some of its records are."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(f"it is stored: {parts}")
        self.parts = parts


class Request(NamedTuple):
    """A request of a producer; ``torn`` are the parts of it that are in the log, when the rest is to follow."""

    producer: ProducerSequence
    torn: Parts = ()

    def check(self, windows: ProducerWindows) -> None:
        """Raise StoredAlready if more of it is in the log than it goes by, OutcomeForgotten if nobody knows."""
        parts = windows.find(self.producer)
        if parts is not None and parts != self.torn:
            raise StoredAlready(parts)

    def note(self, windows: ProducerWindows, begin_offset: int, end_offset: int) -> None:
        """Take in that its records, or the rest of them, are in the log; under the lock of the check."""
        producer_id, sequence, _ = self.producer
        windows.note(producer_id, sequence, (*self.torn[:-1], begin_offset, end_offset))


def is_sequence(producer: ProducerSequence) -> bool:
    """Whether the numbers are those that a producer may send."""
    return (
        0 < producer.producer_id <= PRODUCER_ID_MAX
        and 0 < producer.sequence <= SEQUENCE_MAX
        and producer.age_ms >= 0
    )


def told(request: Request, prepared: Prepared) -> tuple[Request | None, Prepared]:
    """Return a batch with room in its first record for whose it is.

    Where that record has no room a first attempt is stored as of nobody, and others raise OutcomeForgotten.
    """
    if prepared.rows.item(0, PROPERTIES_LENGTH) <= TOLD_SIZE_MAX:
        size = prepared.placed_size + SEQUENCE_PROPERTY_SIZE
        return request, prepared._replace(placed_size=size)
    if request.producer.age_ms or request.torn:
        raise OutcomeForgotten(
            *request.producer[:2], "its first record has no room in its properties for whose it is"
        )
    return None, prepared
