"""Checkpoints of the index: its durable slot in the checkpoint page, raised in two steps.

First the files are synced. Then, as soon as the log is durable up to there, the slot gets the offset
up to which the index is complete, together with the last file's header: an index that is ahead of a
log which lost its end would hold keys of what is gone. The broker's own mark, at byte 16 of the
checkpoint, is raised to the end time of a file that has become full, after that file was synced.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import StoreFull
from storage.format.index import HEADER_SIZE

if TYPE_CHECKING:
    from storage.checkpoint.positions import CheckpointFile
    from storage.clock import Clock
    from storage.format.checkpoint import IndexerSlot
    from storage.index.directory import IndexDirectory
    from storage.index.index_file import IndexFile


class _Synced(NamedTuple):
    """What is synced, for the slot once the log is durable up to there."""

    offset: int
    file_name: int
    file_header: bytes
    index_timestamp_ms: int | None


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
        self._full_timestamp_ms: int | None = (
            None  # end of a full file, which the mark does not have yet
        )
        self._synced: _Synced | None = None
        self._durable_offset = -1
        self._checkpointed_at = clock.monotonic()

    @property
    def durable_offset(self) -> int:
        """End of what the slot says is in the index; -1 before this session has written it."""
        return self._durable_offset

    @property
    def due_in_ms(self) -> float:
        """How long until the interval is over, 0 or less when it is."""
        return self._interval_ms - (self._clock.monotonic() - self._checkpointed_at) * 1000

    @property
    def is_due(self) -> bool:
        """Whether a ``checkpoint`` is due: after the interval, or at once when a file has become full."""
        return self._full_timestamp_ms is not None or self.due_in_ms <= 0

    def start_session(self) -> None:
        """Take the id of the store as a writer has recovered it; what was synced before is forgotten."""
        self._store_id = self._checkpoint.durable.load().store_id
        self._synced = None

    def load(self) -> IndexerSlot | None:
        """Return the newest slot, None if it is not of this store."""
        slot = self._checkpoint.durable.load_index()
        return slot if slot.present and slot.store_id == self._store_id else None

    def begin(self, position: int) -> None:
        """Sync files that are complete up to ``position`` and write just that; durable on return.

        From here on they may be ahead of a slot that says clean, or have other names.
        """
        self._synced = None
        self._full_timestamp_ms = None  # of a file that is no longer there, or not full
        self._durable_offset = -1
        self.sync(position)
        self._write()

    def take_full(self, file: IndexFile) -> None:
        """Sync, seal and close a file that is full; the broker's mark follows with the slot."""
        file.sync()
        with suppress(StoreFull):  # without a checksum the scrub rebuilds it
            self._directory.seal(file)
        self._full_timestamp_ms = file.header.end_timestamp_ms
        file.close()

    def checkpoint(self, position: int | None) -> None:
        """Sync what is complete up to ``position``; write it if the log is durable up to there.

        Else one of the next ``write_synced`` does; until then nothing newer is synced. Nothing is
        synced either for a ``position`` of None, while a run of records is only partly in the files.
        """
        self._checkpointed_at = self._clock.monotonic()
        if self._synced is None and position is not None and position != self._durable_offset:
            self.sync(position)
        self.write_synced()

    def sync(self, position: int) -> None:
        """Sync files that are complete up to ``position``; the next ``write_synced`` writes it."""
        self._directory.sync()
        last = self._directory.last
        self._synced = _Synced(
            position,
            last.number if last is not None else 0,
            last.header_bytes if last is not None else bytes(HEADER_SIZE),
            self._full_timestamp_ms,
        )

    def write_synced(self, *, clean: bool = False) -> None:
        """Write what is synced, if anything, once the log is durable up to there; durable on return.

        ``clean`` says that nothing is put to the files until they are opened again.
        """
        synced = self._synced
        if synced is not None and synced.offset <= self._checkpoint.flushed_offset:
            self._write(clean=clean)

    def _write(self, *, clean: bool = False) -> None:
        synced = self._synced
        assert synced is not None
        self._checkpoint.durable.store_index(
            store_id=self._store_id,
            indexed_offset=synced.offset,
            file_name=synced.file_name,
            file_header=synced.file_header,
            index_timestamp_ms=synced.index_timestamp_ms,
            clean=clean,
        )
        self._durable_offset = synced.offset
        self._synced = None
        if self._full_timestamp_ms == synced.index_timestamp_ms:
            self._full_timestamp_ms = None
