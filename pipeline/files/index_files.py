"""Index files as arrays: the shape of a file, its header, its entries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.format.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexHeader,
    entry_position,
    file_size,
)
from storage.format.names import parse_index_file_name
from storage.kernels.index_shape import deduce_slot_count

if TYPE_CHECKING:
    from storage.view.store_view import StoreView

ENTRY_DTYPE: Final = np.dtype(
    [("hash", ">i4"), ("offset", ">i8"), ("delta", ">i4"), ("previous", ">i4")]
)
BROKER_SLOTS: Final = 5_000_000
BROKER_ENTRIES: Final = 20_000_000
CHECKED_ENTRIES: Final = 4_096


def list_index_files(store: StoreView) -> list[Path]:
    """Return the paths of a store's index files, in order."""
    directory = store.paths.index
    names = [entry.name for entry in store.entries(directory)]
    return [directory / name for name in names if parse_index_file_name(name) is not None]


def slot_count_of(store: StoreView, path: Path) -> int:
    """Return the number of slots of an index file, 0 if nothing tells it.

    Our settings say it, or the size is a broker's default, or the entries themselves tell.
    """
    size = store.size(path)
    shapes = [(BROKER_SLOTS, BROKER_ENTRIES)]
    sizes = store.settings.sizes
    if sizes:
        shapes.insert(0, (sizes["index_slot_count"], sizes["index_entry_count"]))
    for slot_count, entry_count in shapes:
        if size == file_size(slot_count, entry_count):
            return slot_count
    # A damaged file may not tell; one of the same length has the same shape.
    for other in (path, *list_index_files(store)):
        if store.size(other) == size:
            told = int(deduce_slot_count(store.map(other), CHECKED_ENTRIES))
            if told:
                return told
    return 0


def index_header(store: StoreView, path: Path) -> IndexHeader:
    """Return the header of an index file; a blank one of a file that is cut off before its end."""
    data = store.read(path, 0, HEADER_SIZE)
    return IndexHeader.decode(data) if len(data) == HEADER_SIZE else IndexHeader()


def entry_capacity(store: StoreView, path: Path, slot_count: int) -> int:
    """Return the number of the last entry that the file has room for."""
    return max(0, (store.size(path) - entry_position(slot_count, 1)) // ENTRY_SIZE)


def written_entries(store: StoreView, path: Path, slot_count: int) -> int:
    """Return how many entries from number 1 on are written; what is not is zeros."""
    low, high = 0, entry_capacity(store, path, slot_count)
    while low < high:
        middle = (low + high + 1) // 2
        if any(store.read(path, entry_position(slot_count, middle), ENTRY_SIZE)):
            low = middle
        else:
            high = middle - 1
    return low


def index_entries(store: StoreView, path: Path, slot_count: int, count: int) -> npt.NDArray[Any]:
    """Return the entries of an index file from number 1 to ``count``."""
    begin, end = entry_position(slot_count, 1), entry_position(slot_count, count + 1)
    return np.frombuffer(store.map(path, 0, end)[begin:end], ENTRY_DTYPE)
