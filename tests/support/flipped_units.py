"""One bit of a unit of a consume queue, flipped on disk: its record does not confirm it any more."""

from __future__ import annotations

from pathlib import Path

from storage.format.consume_entry import UNIT_SIZE


def flip_unit(store: Path, topic: str, queue_offset: int) -> tuple[Path, bytes]:
    """Flip a bit of a unit of queue 0; return its file, and what that held before."""
    path = store / "consumequeue" / topic / "0" / f"{0:020d}"
    before = path.read_bytes()
    at = queue_offset * UNIT_SIZE + 7
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([before[at] ^ 1]))
    return path, before
