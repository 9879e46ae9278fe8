"""``config/scrub.json``: how far the scrub is, for the next start to go on from there.

It is ours alone; a broker reads the tables of ``config/`` that it knows by name and no other. One that is
missing or damaged means that it is not known when the store was last read as a whole::

    {"formatVersion": 1, "position": commit offset, "end": where this pass ends, 0 between passes,
     "beganMs": Unix time, "completedMs": of the last pass, 0 without one, "checksum": of the rest}

``storage.tables.checked_json`` says what the checksum is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from storage.tables.checked_json import decode_checked, encode_checked, has_checksum

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem

FORMAT_VERSION: Final = 1
FILE_NAME: Final = "scrub.json"


@dataclass(slots=True, kw_only=True)
class ScrubProgress:
    """``position`` is in ``[0, end]``; all are 0 of a store that was never read."""

    position: int = 0
    end: int = 0
    began_ms: int = 0
    completed_ms: int = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a pass was begun and has not come to its end."""
        return self.end > 0


def load_progress(filesystem: FileSystem, config: Path) -> ScrubProgress:
    """Return what was saved; a new one where nothing whole was."""
    try:
        data = filesystem.read_bytes(config / FILE_NAME)
        document = decode_checked(data)
        if has_checksum(data) and document["formatVersion"] == FORMAT_VERSION:
            return ScrubProgress(
                position=document["position"], end=document["end"],
                began_ms=document["beganMs"], completed_ms=document["completedMs"],
            )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    return ScrubProgress()


def save_progress(filesystem: FileSystem, config: Path, progress: ScrubProgress) -> None:
    """Replace the file; durable on return. Raises OSError, StoreFull."""
    document = {
        "formatVersion": FORMAT_VERSION, "position": progress.position, "end": progress.end,
        "beganMs": progress.began_ms, "completedMs": progress.completed_ms,
    }  # fmt: skip
    filesystem.write_atomically(config / FILE_NAME, encode_checked(document), backup=False)
