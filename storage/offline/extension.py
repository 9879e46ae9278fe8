"""Consume queue extension entries, found by the address in a unit's tag code."""

from __future__ import annotations

from pathlib import Path

from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.extension_entry import (
    ExtensionEntry,
    decode_address,
    decode_extension,
    is_address,
)
from storage.view.queues.unit_search import Unit

DIRECTORY = "consumequeue_ext"


class QueueExtension:
    """The extension files of one queue, if it has any."""

    def __init__(self, filesystem: FileSystem, root: Path, topic: str, queue_id: int) -> None:
        self._files = ReadOnlyMappedFileQueue(
            filesystem, root / DIRECTORY / topic / str(queue_id), file_size=0
        )

    def entry(self, tag_code: int) -> ExtensionEntry | None:
        """Return the entry that a tag code addresses; None if it is not an address, or leads nowhere."""
        if not is_address(tag_code):
            return None
        offset = decode_address(tag_code)
        mapped = self._files.find(offset)
        if mapped is None:
            return None
        try:
            return decode_extension(mapped.array.data, offset - mapped.start_offset)
        except ValueError:
            return None

    def tag_code(self, unit: Unit) -> int:
        """Return the tag code a unit means."""
        entry = self.entry(unit.tag_code)
        return unit.tag_code if entry is None else entry.tag_code
