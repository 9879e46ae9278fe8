"""Flipped bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


def flipped(data: bytes, bits: Iterable[int] | None = None) -> Iterator[bytes]:
    """Yield the data with one bit flipped, each bit in turn, or those of ``bits``."""
    for bit in range(8 * len(data)) if bits is None else bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def flip(path: Path, position: int, mask: int = 1) -> None:
    """Flip bits of one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)
