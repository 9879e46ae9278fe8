"""Java's string hash, which tags and index keys are stored as."""

from __future__ import annotations

from struct import iter_unpack


def java_hash(text: str) -> int:
    """Hash ``text`` as Java does, over its UTF-16 units; a signed 32-bit integer."""
    hashed = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    return hashed - (1 << 32) if hashed & 0x8000_0000 else hashed
