"""Flipped bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def flipped(data: bytes, bits: Iterable[int] | None = None) -> Iterator[bytes]:
    """Yield the data with one bit flipped, each bit in turn, or those of ``bits``."""
    for bit in range(8 * len(data)) if bits is None else bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
