"""What the checkpoint file says is durable: the slots of writer and indexer.

Each has two, written in turn, so that a store that is cut leaves the one before; a slot with a wrong
checksum counts as absent. A slot is raised only by its owner, after its own sync of what it covers.
"""

from __future__ import annotations

from struct import pack_into
from typing import TYPE_CHECKING, TypeVar

from storage.format import checkpoint as layout
from storage.format.checkpoint import BrokerFields, IndexerSlot, WriterSlot

if TYPE_CHECKING:
    from storage.files.filesystem import File


class DurableSlots:
    """The slots of a mapped page, and the broker's bytes 0-39 that stand before them."""

    def __init__(self, page: memoryview, file: File) -> None:
        self._bytes = page
        self._words = page.cast("q")
        self._file = file

    @property
    def broker_fields(self) -> BrokerFields:
        """Bytes 0-39 now."""
        return BrokerFields.decode(bytes(self._bytes[: layout.BROKER_SIZE]))

    def load(self) -> WriterSlot:
        """Return what the newest whole writer slot says. Raises UnsupportedFormat."""
        return layout.newest_writer_slot(bytes(self._bytes))

    def store(
        self,
        *,
        store_id: bytes,
        flushed_offset: int,
        dispatched_offset: int,
        unit_count: int,
        physic_timestamp_ms: int | None = None,
        logics_timestamp_ms: int | None = None,
        clean: bool = False,
        synced_only: bool = False,
    ) -> None:
        """Say that log and queues are durable up to the two offsets; durable on return.

        ``unit_count`` is how many units the queues' files hold then, so that a later start sees when
        files of them are gone or short. Call it only after syncing them. The two optional values are
        the broker's fields; None leaves one as it is. With ``synced_only`` nothing that comes after is acknowledged or
        shown before it is synced. Raises OSError when the sync fails: the store has failed then.
        """
        page = bytes(self._bytes)
        now = BrokerFields.decode(page)
        fields = BrokerFields(
            now.physic_timestamp_ms if physic_timestamp_ms is None else physic_timestamp_ms,
            now.logics_timestamp_ms if logics_timestamp_ms is None else logics_timestamp_ms,
            now.index_timestamp_ms,
            now.master_flushed_offset,
            now.confirm_offset,
        )
        sequence, position = _next_slot(layout.writer_slots(page), layout.WRITER_SLOT_POSITIONS)
        slot = WriterSlot(
            clean, sequence, store_id, flushed_offset, dispatched_offset, unit_count,
            layout.writer_broker_fields(fields.encode()), layout.writer_broker_fields(page),
            synced_only,
        )  # fmt: skip
        # The broker's fields follow their slot only once it is durable, and reach the disk with a
        # later sync: whatever survives a cut, they are in a whole slot as its values or as those
        # before it, so our own crash is never taken for a broker's run.
        self._store_slot(position, slot.encode())
        self._file.sync()
        self._store_big_endian(0, fields.physic_timestamp_ms)
        self._store_big_endian(8, fields.logics_timestamp_ms)
        if clean:
            self._file.sync()

    def load_index(self) -> IndexerSlot:
        """Return what the newest whole indexer slot says. Raises UnsupportedFormat."""
        return layout.newest_indexer_slot(bytes(self._bytes))

    def store_index(
        self,
        *,
        store_id: bytes,
        indexed_offset: int,
        file_name: int,
        file_header: bytes,
        index_timestamp_ms: int | None = None,
        clean: bool = False,
    ) -> None:
        """Say that the index files are durable up to the offset; durable on return.

        Call it only after syncing them. ``index_timestamp_ms`` is the broker's field at byte 16.
        """
        slots = layout.indexer_slots(bytes(self._bytes))
        sequence, position = _next_slot(slots, layout.INDEXER_SLOT_POSITIONS)
        slot = IndexerSlot(clean, sequence, store_id, indexed_offset, file_name, file_header)
        self._store_slot(position, slot.encode())
        self._file.sync()
        if index_timestamp_ms is not None:
            self._store_big_endian(layout.INDEX_TIMESTAMP_POSITION, index_timestamp_ms)
            self._file.sync()

    def _store_slot(self, position: int, data: bytes) -> None:
        self._bytes[position : position + len(data)] = data

    def _store_big_endian(self, position: int, value: int) -> None:
        swapped = bytearray(8)
        pack_into(">q", swapped, 0, value)
        self._words[position // 8] = memoryview(swapped).cast("q")[0]


_Slot = TypeVar("_Slot", WriterSlot, IndexerSlot)


def _next_slot(slots: dict[int, _Slot], positions: tuple[int, int]) -> tuple[int, int]:
    """Return the sequence and position of the next store: never over the newest whole slot."""
    if not slots:
        return 1, positions[0]
    newest = max(slots, key=lambda position: slots[position].sequence)
    return slots[newest].sequence + 1, positions[1 - positions.index(newest)]
