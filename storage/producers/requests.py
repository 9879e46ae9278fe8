"""Requests of producers on their way into the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import OutcomeForgotten, PicklableError, StoreBusy
from storage.format.producer_sequence import PRODUCER_ID_MAX, SEQUENCE_MAX

if TYPE_CHECKING:
    from storage.format.producer_windows import Parts
    from storage.message import ProducerSequence


class StoredAlready(PicklableError):
    """A request is in the log already, or some of its records are."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(f"it is stored: {parts}")
        self.parts = parts


def is_sequence(producer: ProducerSequence) -> bool:
    """Whether the numbers are those that a producer may send."""
    producer_id, sequence, age_ms = producer
    return 0 < producer_id <= PRODUCER_ID_MAX and 0 < sequence <= SEQUENCE_MAX and age_ms >= 0


def check_not_busy(against: Exception) -> None:
    """Raise what is against a first attempt if it says that nothing is, but for the moment."""
    if isinstance(against, StoreBusy):
        raise against


def check_untold(producer: ProducerSequence, torn: Parts) -> None:
    """Raise OutcomeForgotten unless a request may be stored that cannot say whose it is: a first attempt."""
    if producer.age_ms or torn:
        raise OutcomeForgotten(
            *producer[:2], "its first record has no room in its properties for whose it is"
        )
