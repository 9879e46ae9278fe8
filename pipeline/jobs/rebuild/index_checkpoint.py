"""The checkpoint of index files that a job has made, for the indexer to keep them.

The indexer goes on from a slot of the checkpoint page that names its last file. Files which no slot
names are looked at again when it starts, and after an unclean end made again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from storage.format.checkpoint import (
    INDEXER_SLOT_POSITIONS,
    PAGE_SIZE,
    WRITER_SLOT_POSITIONS,
    IndexerSlot,
    WriterSlot,
)
from storage.format.index import HEADER_SIZE

if TYPE_CHECKING:
    from storage.view.store_view import StoreView


def checkpoint_index(store: StoreView, indexed_offset: int) -> None:
    """Say that the index files of a stopped store of ours are durable and cover the log so far.

    Nothing is written where the store is not ours, or a broker has had it since. Durable on return.
    """
    page = store.checkpoint.page
    if store.stated_bounds() is None or len(page) < PAGE_SIZE:
        return
    writers = [WriterSlot.decode(page, at) for at in WRITER_SLOT_POSITIONS]
    newest = max((slot for slot in writers if slot), key=lambda slot: slot.sequence)
    slots = {at: IndexerSlot.decode(page, at) for at in INDEXER_SLOT_POSITIONS}
    sequences = {at: slot.sequence if slot else 0 for at, slot in slots.items()}
    files = store.index_files()
    slot = IndexerSlot(
        clean=True,
        sequence=max(sequences.values()) + 1,
        store_id=newest.store_id,
        indexed_offset=indexed_offset,
        file_name=int(files[-1].name) if files else 0,
        file_header=files[-1].header_bytes() if files else bytes(HEADER_SIZE),
    )
    descriptor = os.open(store.paths.checkpoint, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, slot.encode(), min(sequences, key=lambda at: sequences[at]))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
