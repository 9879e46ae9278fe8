"""The property by which a record says which request of which producer it was stored by.

The store writes it into the first record of a request's records, before all other properties::

    position  size  content
    0         7     name, NAME_END
    7         16    id of the producer, above 0 and below 2**63
    23        8     sequence of the request, from 1 on
    31        8     bytes that all records of the request have in the log, this one's included
    39        8     last 32 bits of the record's commit offset
    47        1     PROPERTY_END

Numbers are hexadecimal digits in capitals. A record whose commit offset is another one is a copy: a
message that was delivered later, forwarded, or of a store that was made from this one. It says nothing.
"""

from __future__ import annotations

from typing import Final

from storage.format.properties import NAME_END, PRODUCER_SEQUENCE, PROPERTY_END

PRODUCER_DIGITS: Final = 16
NUMBER_DIGITS: Final = 8
PREFIX: Final = PRODUCER_SEQUENCE + chr(NAME_END)
SEQUENCE_AT: Final = len(PREFIX) + PRODUCER_DIGITS
SIZE_AT: Final = SEQUENCE_AT + NUMBER_DIGITS
PLACE_AT: Final = SIZE_AT + NUMBER_DIGITS
END_AT: Final = PLACE_AT + NUMBER_DIGITS
SEQUENCE_PROPERTY_SIZE: Final = END_AT + 1
PLACE_MASK: Final = (1 << 4 * NUMBER_DIGITS) - 1
SEQUENCE_MAX: Final = (1 << 4 * NUMBER_DIGITS) - 1
PRODUCER_ID_MAX: Final = (1 << 63) - 1


def encode_sequence(producer_id: int, sequence: int, size: int, commit_offset: int = 0) -> bytes:
    """Return the property."""
    numbers = f"{producer_id:016X}{sequence:08X}{size:08X}{commit_offset & PLACE_MASK:08X}"
    return f"{PREFIX}{numbers}{chr(PROPERTY_END)}".encode()
