"""The checkpoint of a store that nobody has open: what a job has made durable, for its next start.

The writer and the indexer go on from slots of the checkpoint page. Index files that no slot names are
looked at again when the indexer starts, and after an unclean end made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from storage.checkpoint.positions import CheckpointFile, Role
from storage.files.filesystem import FileSystem
from storage.format.checkpoint import PAGE_SIZE
from storage.format.consume_entry import UNIT_SIZE
from storage.format.index import HEADER_SIZE
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from storage.checkpoint.durable_slots import DurableSlots


def write_checkpoint(
    root: Path, *, store_id: bytes, end_offset: int, last_timestamp_ms: int
) -> None:
    """Write the checkpoint of a new store: its log, queues and index are durable up to ``end_offset``.

    They look as after an orderly stop, the newest record stored at ``last_timestamp_ms``. Durable on
    return; whoever calls it syncs the files themselves before the store gets its name.
    """
    store = StoreView(root)
    units = sum(
        queue.end - queue.files[0].start_offset // UNIT_SIZE
        for topic, queue_id, _ in store.queue_directories()
        if (queue := store.open_queue(topic, queue_id, 0, end_offset)).files
    )
    headers = [file.header() for file in store.index_files()]
    full = [header for header in headers if header.next_entry >= store.sizes.index_entry_count]
    with _durable_slots(store, Role.WRITER) as slots:
        slots.store(
            store_id=store_id,
            flushed_offset=end_offset,
            dispatched_offset=end_offset,
            unit_count=units,
            physic_timestamp_ms=last_timestamp_ms,
            logics_timestamp_ms=last_timestamp_ms,
            clean=True,
        )
    with _durable_slots(store, Role.INDEXER) as slots:
        _store_index(store, slots, store_id, end_offset, full[-1].end_timestamp_ms if full else 0)


def checkpoint_index(store: StoreView, indexed_offset: int) -> None:
    """Say that the index files of a stopped store of ours are durable and cover the log so far.

    Nothing is written where the store is not ours, or a broker has had it since. Durable on return.
    """
    if store.stated_bounds() is None or len(store.checkpoint.page) < PAGE_SIZE:
        return
    with _durable_slots(store, Role.INDEXER) as slots:
        _store_index(store, slots, store.checkpoint.durable.store_id, indexed_offset, None)


def _store_index(
    store: StoreView,
    slots: DurableSlots,
    store_id: bytes,
    indexed_offset: int,
    index_timestamp_ms: int | None,
) -> None:
    files = store.index_files()
    slots.store_index(
        store_id=store_id,
        indexed_offset=indexed_offset,
        file_name=int(files[-1].name) if files else 0,
        file_header=files[-1].header_bytes() if files else bytes(HEADER_SIZE),
        index_timestamp_ms=index_timestamp_ms,
        clean=True,
    )


@contextmanager
def _durable_slots(store: StoreView, role: Role) -> Iterator[DurableSlots]:
    page = CheckpointFile.open(FileSystem(), store.paths.checkpoint, role)
    try:
        yield page.durable
    finally:
        page.close()
