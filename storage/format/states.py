"""The blocks of the journal of states, ``journal/<generation>`` (``storage.format.journal``).

STATES has some states, each as a whole; the latest of a name counts, and the first block of a file has them
all. Little-endian, one after the other::

    offset  size  type  field
    0       4     u32   name_size    bytes
    4       4     u32   size         bytes; 0 where the state is removed
    8       -     -     name         UTF-8
    -       -     -     state
    -       -     -     zeros        up to a multiple of 8 bytes

SYNCED has nothing, and follows when all before it is on the disk. So a block that is not whole was damaged
since if any other follows it; else it is what a stop has torn.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

STATES: Final = 4
SYNCED: Final = 5
LAYOUT: Final = Struct("<II")


def encode_states(states: Mapping[str, bytes]) -> bytes:
    """Return the payload of a STATES block."""
    parts = []
    for name, state in states.items():
        encoded = name.encode()
        part = LAYOUT.pack(len(encoded), len(state)) + encoded + state
        parts += [part, bytes(-len(part) % 8)]
    return b"".join(parts)


def decode_states(payload: memoryview) -> dict[str, bytes]:
    """Return the states of a STATES block, b"" for one that is removed. Raises ValueError for anything else."""
    states, position = {}, 0
    while position < len(payload):
        if position + LAYOUT.size > len(payload):
            raise ValueError("states that end in the middle of one")
        name_size, size = LAYOUT.unpack_from(payload, position)
        begin = position + LAYOUT.size + name_size
        end = begin + size
        if end > len(payload):
            raise ValueError("states that end in the middle of one")
        name = bytes(payload[begin - name_size : begin]).decode()
        states[name] = bytes(payload[begin:end])
        position = end + -end % 8
    return states
