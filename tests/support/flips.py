"""Damage of files, and what the doctor says of a store then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from storage import offline
from storage.format.consume_entry import UNIT_SIZE


def flipped(data: bytes, bits: Iterable[int] | None = None) -> Iterator[bytes]:
    """Yield the data with one bit flipped, each bit in turn, or those of ``bits``."""
    for bit in range(8 * len(data)) if bits is None else bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Write bytes where they are, for who has the file mapped, too."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, mask: int = 1) -> None:
    """Flip bits of one byte of a file; again, and it is mended."""
    with path.open("rb") as file:
        file.seek(position)
        [byte] = file.read(1)
    overwrite(path, position, bytes([byte ^ mask]))


def flip_unit(store: Path, topic: str, queue_offset: int) -> tuple[Path, bytes]:
    """Flip a bit of a unit of queue 0; return its file, and what that held before."""
    path = store / "consumequeue" / topic / "0" / f"{0:020d}"
    before = path.read_bytes()
    flip(path, queue_offset * UNIT_SIZE + 7)
    return path, before


def cut(path: Path, size: int) -> None:
    """Leave the first bytes of a file."""
    with path.open("r+b") as file:
        file.truncate(size)


def wrong(directory: Path) -> list[dict[str, Any]]:
    """Return what the doctor calls wrong."""
    return [line for line in offline.doctor(directory) if line["severity"] in ("warning", "damage")]
