"""Index files as arrays: the shape of a file, its header, its entries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.files.places import entries, map_file
from pipeline.files.places import file_size as size_of_file
from pipeline.files.store_files import INDEX_DIRECTORY
from storage.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, file_size
from storage.format.names import parse_index_file_name

if TYPE_CHECKING:
    from pipeline.files.store_files import StoreFiles

ENTRY_DTYPE: Final = np.dtype(
    [("hash", ">i4"), ("offset", ">i8"), ("delta", ">i4"), ("previous", ">i4")]
)
BROKER_SLOTS: Final = 5_000_000
BROKER_ENTRIES: Final = 20_000_000
CHECKED_ENTRIES: Final = 4_096


def list_index_files(store: StoreFiles) -> list[str]:
    """Return the paths of a store's index files, in order."""
    found = sorted(entries(store.root / INDEX_DIRECTORY))
    return [entry.path for entry in found if parse_index_file_name(entry.name) is not None]


def slot_count_of(store: StoreFiles, path: str) -> int:
    """Return the number of slots of an index file, 0 if nothing tells it.

    Our settings say it, or the size is a broker's default, or the entries themselves tell.
    """
    size = size_of_file(path)
    shapes = [(BROKER_SLOTS, BROKER_ENTRIES)]
    try:
        settings = json.loads((store.root / "config" / "penstock.json").read_bytes())
        shapes.insert(0, (int(settings["indexSlotCount"]), int(settings["indexEntryCount"])))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    for slot_count, entry_count in shapes:
        if size == file_size(slot_count, entry_count):
            return slot_count
    from storage.kernels.index_shape import deduce_slot_count

    # A damaged file may not tell; one of the same length has the same shape.
    for other in (path, *list_index_files(store)):
        if size_of_file(other) == size:
            told = int(deduce_slot_count(map_file(other), CHECKED_ENTRIES))
            if told:
                return told
    return 0


def index_entries(path: str, slot_count: int) -> tuple[IndexHeader, npt.NDArray[Any]]:
    """Return the header of an index file and its entries from number 1 on."""
    data = map_file(path)
    if len(data) < HEADER_SIZE or not slot_count:
        return IndexHeader(), np.empty(0, ENTRY_DTYPE)
    header = IndexHeader.decode(data[:HEADER_SIZE].tobytes())
    begin = HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE
    count = max(0, min(header.next_entry - 1, (len(data) - begin) // ENTRY_SIZE))
    return header, np.frombuffer(data[begin : begin + count * ENTRY_SIZE], ENTRY_DTYPE)
