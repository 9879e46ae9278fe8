"""What a checked batch says of the messages of transactions in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from storage.errors import InvalidBatch
from storage.format.properties import CHECK_IMMUNITY, decode_properties
from storage.kernels.columns import (
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    UNIQ_KEY_LENGTH,
    UNIQ_KEY_POSITION,
)
from storage.transactions.halves import number_in

if TYPE_CHECKING:
    from storage.log.batches import Prepared

_IMMUNITY: Final = CHECK_IMMUNITY.encode()


def unique_keys(sent: Prepared) -> Iterator[str]:
    """Yield the unique key of each message. Raises InvalidBatch at one without."""
    places = sent.rows[: sent.record_count, (UNIQ_KEY_POSITION, UNIQ_KEY_LENGTH)].tolist()
    for row, (position, length) in enumerate(places):
        if length == 0:
            raise InvalidBatch(row, "a message of a transaction needs the property UNIQ_KEY")
        yield sent.data[position : position + length].tobytes().decode()


def immunity_ms(sent: Prepared, row: int, immunity_s: int) -> int:
    """Return how long a message's producer is not asked, by its own property first; 0 if nothing says so."""
    position, length = sent.rows[row, (PROPERTIES_POSITION, PROPERTIES_LENGTH)].tolist()
    block = sent.data[position : position + length].tobytes()
    if _IMMUNITY in block:
        immunity_s = number_in(decode_properties(block).get(CHECK_IMMUNITY, ""), immunity_s)
    return immunity_s * 1_000
