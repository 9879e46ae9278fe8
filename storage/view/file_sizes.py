"""How long the files of a store are: as its settings say, else as they are found on disk.

A directory that a broker made has no settings document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.config import StoreConfig
from storage.errors import NotAStore
from storage.files.mapped_file_queue import FileEntry, list_files
from storage.format.consume_entry import UNIT_SIZE
from storage.view.layout import StorePaths, queues_on_disk
from storage.view.settings import StoreSettings

if TYPE_CHECKING:
    from storage.files.filesystem import ReadFileSystem

PAGE_SIZE: Final = 4096  # a log file that is shorter was cut


class FileSizes(NamedTuple):
    """The sizes of a store's files, named as in ``StoreConfig``: bytes, numbers of slots and entries."""

    commit_log_file_size: int
    consume_queue_file_size: int
    index_slot_count: int
    index_entry_count: int


def effective_config(
    filesystem: ReadFileSystem, paths: StorePaths, config: StoreConfig, settings: StoreSettings
) -> StoreConfig:
    """Return ``config`` with the sizes that this store was made with. Raises NotAStore."""
    if settings.present:
        return with_settled_sizes(paths, config, settings)
    log_size = common_size(list_files(filesystem, paths.commit_log))
    if log_size:
        config = replace(config, commit_log_file_size=max(log_size, PAGE_SIZE))
    queue_size = common_size(_queue_files(filesystem, paths.consume_queue))
    if queue_size:
        config = replace(config, consume_queue_file_size=queue_size // UNIT_SIZE * UNIT_SIZE)
    return config


def with_settled_sizes(
    paths: StorePaths, config: StoreConfig, settings: StoreSettings
) -> StoreConfig:
    """Return ``config`` with the sizes in ``penstock.json``. Raises NotAStore if none can have them."""
    try:
        return replace(config, **settings.sizes)  # type: ignore[arg-type]
    except ValueError as error:
        raise NotAStore(f"{paths.settings} is damaged: {error}") from error


def _queue_files(filesystem: ReadFileSystem, directory: Path) -> Iterator[FileEntry]:
    for topic, queue_id in queues_on_disk(filesystem, directory):
        yield from list_files(filesystem, directory / topic / str(queue_id))


def common_size(files: Iterable[FileEntry]) -> int:
    """Return the length most files have, 0 without any file.

    Among equals the one at whose multiples more files begin, and then the longer.
    """
    listed = [entry for entry in files if entry.size >= UNIT_SIZE]
    counts = Counter(entry.size for entry in listed)
    highest = max(counts.values(), default=0)
    fitting = {
        size: sum(entry.start_offset % size == 0 for entry in listed)
        for size, count in counts.items()
        if count == highest
    }
    return max(fitting, key=lambda size: (fitting[size], size), default=0)
