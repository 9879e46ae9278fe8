"""Checkpoints of the index: its durable slot in the checkpoint page.

First the files are synced. Then the slot gets the last file's header, and up to where the index is
complete, but no offset beyond what is durable of the log. The header may be ahead of that: where the log
lost its end, a start finds that the log does not confirm the file, and indexes it again. The broker's own
mark, at byte 16 of the checkpoint, is raised to the end time of a file that has become full, once file and
log are durable.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.errors import StoreFull
from storage.format.index import HEADER_SIZE

if TYPE_CHECKING:
    from storage.checkpoint.positions import CheckpointFile
    from storage.clock import Clock
    from storage.format.checkpoint import IndexerSlot
    from storage.format.index import IndexHeader
    from storage.index.directory import IndexDirectory
    from storage.index.index_file import IndexFile


class IndexCheckpointer:
    """Writes the indexer's durable slot. One thread at a time."""

    def __init__(
        self,
        checkpoint: CheckpointFile,
        directory: IndexDirectory,
        *,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._checkpoint = checkpoint
        self._directory = directory
        self._clock = clock
        self._interval_ms = interval_ms
        self._store_id = b""
        self._full: IndexHeader | None = None  # of a full file, which the mark does not have yet
        self.durable_offset = -1
        """End of what the slot says is in the index; -1 before this session has written it."""
        self._checkpointed_at = clock.monotonic()

    @property
    def due_in_ms(self) -> float:
        """How long until the interval is over, 0 or less when it is."""
        return self._interval_ms - (self._clock.monotonic() - self._checkpointed_at) * 1000

    @property
    def is_due(self) -> bool:
        """Whether a ``checkpoint`` is due: after the interval, or when the mark can be raised."""
        return self._mark() is not None or self.due_in_ms <= 0

    def _mark(self) -> int | None:
        """Return what the broker's mark is to be raised to; None where there is nothing, or not durable in the log."""
        full = self._full
        if full is None or full.end_commit_offset >= self._checkpoint.flushed_offset:
            return None
        return full.end_timestamp_ms

    def _durable(self, position: int) -> int:
        """Return up to where the log is durable, at most ``position``."""
        return min(position, self._checkpoint.flushed_offset)

    def start_session(self) -> None:
        """Take the id of the store as a writer has recovered it."""
        self._store_id = self._checkpoint.durable.load().store_id

    def load(self) -> IndexerSlot | None:
        """Return the newest slot, None if it is not of this store."""
        slot = self._checkpoint.durable.load_index()
        return slot if slot.present and slot.store_id == self._store_id else None

    def begin(self, position: int) -> None:
        """Sync files that are complete up to ``position`` and write that; durable on return.

        From here on they may be ahead of a slot that says clean, or have other names.
        """
        self._full = None  # of a file that is no longer there, or not full
        self.durable_offset = -1
        self.checkpoint(position)

    def take_full(self, file: IndexFile) -> None:
        """Sync, seal and close a file that is full; the broker's mark follows with the slot."""
        file.sync()
        with suppress(StoreFull):  # without a checksum the scrub rebuilds it
            self._directory.seal(file)
        self._full = file.header
        file.close()

    def checkpoint(self, position: int, *, clean: bool = False) -> None:
        """Sync files that are complete up to ``position``, and write it if the slot has less; durable on return.

        ``clean`` says that nothing is put to the files until they are opened again.
        """
        self._checkpointed_at = self._clock.monotonic()
        durable_offset, mark = self._durable(position), self._mark()
        if durable_offset == self.durable_offset and mark is None and not clean:
            return
        self._directory.sync()
        last = self._directory.last
        self._checkpoint.durable.store_index(
            store_id=self._store_id,
            indexed_offset=durable_offset,
            file_name=last.number if last is not None else 0,
            file_header=last.header_bytes if last is not None else bytes(HEADER_SIZE),
            index_timestamp_ms=mark,
            clean=clean,
        )
        self.durable_offset = durable_offset
        if mark is not None:
            self._full = None
