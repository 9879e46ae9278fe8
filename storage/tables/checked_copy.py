"""A copy of one of a broker's tables, with a checksum: ``topics.json.checked`` beside ``topics.json``.

A line of JSON, and the bytes of the table as they were written::

    {"checksum": "9ae1f0c2", "generation": 12, "previous": "77aa0102-345"}
    <bytes of the table>

``checksum`` is the CRC-32 of the rest: ``generation``, a space, ``previous``, a line feed, the bytes.
``generation`` grows by one with each write. ``previous`` is the fingerprint (CRC-32 and length) of the
table's file before, which is its ``.bak`` from then on; empty without one. So a table that a broker has
replaced since, whose ``.bak`` is then what this file holds, differs from one that was damaged in its place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCopy:
    """What a table is to hold, and the fingerprint of what its file held before."""

    generation: int
    previous: str
    data: bytes

    def encode(self) -> bytes:
        """Return the file's bytes."""
        head = {
            "checksum": self._checksum(),
            "generation": self.generation,
            "previous": self.previous,
        }
        return json.dumps(head).encode() + b"\n" + self.data

    @classmethod
    def decode(cls, content: bytes) -> CheckedCopy:
        """Read the file's bytes. Raises ValueError for what ``encode`` has not returned."""
        line, _, data = content.partition(b"\n")
        try:
            head = json.loads(line.decode())
            copy = cls(
                generation=int(head["generation"]), previous=str(head["previous"]), data=data
            )
            given = head["checksum"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a checked copy: {error!r}") from None
        if given != copy._checksum():
            raise ValueError("its checksum does not match")
        return copy

    def _checksum(self) -> str:
        head = f"{self.generation} {self.previous}\n".encode()
        return f"{crc32(self.data, crc32(head)):08x}"


def fingerprint(data: bytes | None) -> str:
    """Return a text that differs for each content of a file; empty for no file."""
    return "" if data is None else f"{crc32(data):08x}-{len(data)}"
