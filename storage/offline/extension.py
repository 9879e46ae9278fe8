"""Consume queue extension entries, found by the address in a unit's tag code."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from storage.files.filesystem import ByteArray, FileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.consume_entry import UNIT_SIZE
from storage.format.extension_entry import (
    ExtensionEntry,
    decode_address,
    decode_extension,
    is_address,
)
from storage.view.queues.consume_queue import ConsumeQueueView, UnitSpan
from storage.view.queues.rebuilt_units import RebuiltUnits
from storage.view.queues.unit_search import Unit, unit_at

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


class ResolvedQueueView(ConsumeQueueView):
    """A queue whose units show their own tag codes where they hold addresses.

    For a broker's filter by hash. Files are copied as they are met, a step in Python per unit.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        rebuilt: RebuiltUnits,
        extension: QueueExtension,
    ) -> None:
        super().__init__(filesystem, directory, rebuilt)
        self._extension = extension
        self._resolved: dict[int, ByteArray] = {}

    def span(self, queue_offset: int, max_offset: int) -> UnitSpan | None:
        """Return the file of units that ``queue_offset`` is in, addresses replaced."""
        span = super().span(queue_offset, max_offset)
        if span is None:
            return None
        resolved = self._resolved.get(span.first_queue_offset)
        if resolved is None:
            resolved = span.array.copy()
            for index in range(span.end):
                code = self._extension.tag_code(unit_at(resolved, index))
                at = (index + 1) * UNIT_SIZE
                resolved[at - 8 : at] = np.frombuffer(
                    code.to_bytes(8, "big", signed=True), np.uint8
                )
            self._resolved[span.first_queue_offset] = resolved
        return span._replace(array=resolved)
