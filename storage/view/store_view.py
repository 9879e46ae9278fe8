"""One store directory as it can be read: on this machine, or behind a URL.

Listings are made once, at the first look; what comes later is for the next view. A view is pickled as
the place that it looks at and nothing else, so tasks on other machines look themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.config import StoreConfig
from storage.errors import NotAStore
from storage.files.directory_lock import is_in_use
from storage.files.filesystem import DirectoryEntry as DirectoryEntry
from storage.files.location import StoreLocation as StoreLocation
from storage.files.mapped_file_queue import FileEntry, list_files
from storage.format.consume_entry import PREFILL_SIZE
from storage.view.bounds import Bounds, CheckpointPage
from storage.view.config_tables import ConfigTables, read_config_tables, topic_names
from storage.view.file_sizes import FileSizes, effective_config
from storage.view.incarnations import Incarnations
from storage.view.index.entries import IndexEntries, open_index
from storage.view.index.index_file import IndexShape
from storage.view.index.shape import find_index_shape
from storage.view.layout import StorePaths, queues_on_disk
from storage.view.log.commit_log import EVERYTHING, ListedLog
from storage.view.log.end import end_of_copy, end_of_log
from storage.view.log.lost_end import find_lost_end
from storage.view.log.walk import DamagedRange, End
from storage.view.queues.queue_files import QueueFiles
from storage.view.settings import StoreSettings, load_settings

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, Positions

OPENED_AT_ONCE: Final = 16  # queues of a store that is not on this machine


class StoreView:
    """The read side of one store. ``open`` checks that there is one."""

    def __init__(self, store: StoreLocation | Path | str) -> None:
        self.location = StoreLocation.of(store)
        self.filesystem = self.location.filesystem()
        self.paths = StorePaths(self.location.root)

    @classmethod
    def open(cls, store: StoreLocation | Path | str) -> StoreView:
        """Return a view of the store at a path or URL.

        Raises NotAStore if there is none, UnsupportedFormat if newer code wrote its settings or
        checkpoint.
        """
        view = cls(store)
        names = {entry.name for entry in view.entries(view.paths.root) if entry.is_directory}
        is_there = bool(names) if view.location.is_url else view.location.root.is_dir()
        if not is_there:
            raise NotAStore(f"{view}: no such directory")
        if view.paths.commit_log.name not in names:
            raise NotAStore(f"{view} is not a store: it has no directory 'commitlog'")
        _ = view.settings, view.checkpoint  # newer formats are refused here, whatever is read
        return view

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreView, (self.location,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreView) and self.location == other.location

    def __hash__(self) -> int:
        return hash(self.location)

    def __str__(self) -> str:
        return self.location.text

    def __repr__(self) -> str:
        return f"StoreView({self.location.text!r})"

    @cached_property
    def settings(self) -> StoreSettings:
        """What ``penstock.json`` says. Raises UnsupportedFormat."""
        return load_settings(self.filesystem, self.paths)

    @cached_property
    def sizes(self) -> FileSizes:
        """The sizes that the store's files were made with; a broker's own where nothing says them.

        Raises NotAStore if no store can have those in ``penstock.json``.
        """
        config = effective_config(self.filesystem, self.paths, StoreConfig(), self.settings)
        shape = IndexShape(config.index_slot_count, config.index_entry_count)
        if not self.settings.present:
            shape = find_index_shape(self.filesystem, self.paths.index, shape)
        return FileSizes(config.commit_log_file_size, config.consume_queue_file_size, *shape)

    def incarnations(self) -> Incarnations | None:
        """Read which topics have been deleted by now; None if no writer of ours notes that."""
        settings = load_settings(self.filesystem, self.paths)
        return settings.incarnations if settings.present else None

    @cached_property
    def checkpoint(self) -> CheckpointPage:
        """The checkpoint page as it is at the first look. Raises UnsupportedFormat."""
        try:
            page = self.filesystem.read_bytes(self.paths.checkpoint)
        except FileNotFoundError:
            page = b""
        return CheckpointPage(page, name=str(self), boot_id=self.filesystem.boot_id())

    @cached_property
    def log(self) -> ListedLog:
        """The files of the commit log."""
        return ListedLog(self.filesystem, self.paths.commit_log)

    @property
    def is_in_use(self) -> bool:
        """Whether a writer, a broker or an indexer works on the store; of a copy nobody does."""
        return not self.location.is_url and is_in_use(self.paths.root)

    def entries(self, directory: Path) -> list[DirectoryEntry]:
        """List a directory; empty where there is none."""
        try:
            return self.filesystem.list_directory(directory)
        except NotADirectoryError:
            return []

    def files(self, directory: Path) -> list[FileEntry]:
        """List the offset-named files of a directory, as long as they are."""
        return list_files(self.filesystem, directory)

    def queue_directories(self) -> Iterator[tuple[str, int, Path]]:
        """Yield topic, queue id and directory of each queue on disk, sorted."""
        for topic, queue_id in sorted(queues_on_disk(self.filesystem, self.paths.consume_queue)):
            yield topic, queue_id, self.queue_directory(topic, queue_id)

    def queue_directory(self, topic: str, queue_id: int) -> Path:
        """Return where a queue's files lie, whether there are any or not."""
        return self.paths.consume_queue / topic / str(queue_id)

    def queue(self, topic: str, queue_id: int) -> QueueFiles:
        """List the files of a queue, to read any unit of them."""
        return QueueFiles.whole(self.filesystem, self.queue_directory(topic, queue_id))

    def open_queue(self, topic: str, queue_id: int, min_offset: int, end_offset: int) -> QueueFiles:
        """Look where the units of a queue lie that point into ``[min_offset, end_offset)`` of the log."""
        where = self.filesystem, self.queue_directory(topic, queue_id), min_offset, end_offset
        try:
            return QueueFiles.open(*where)
        except FileNotFoundError:  # one went since they were listed
            return QueueFiles.open(*where)

    def open_queues(
        self, min_offset: int, end_offset: int, wants: Callable[[str], bool] | None = None
    ) -> dict[tuple[str, int], QueueFiles]:
        """Return the files of each queue, of all topics or those wanted, by topic and queue id, sorted."""

        def opened(key: tuple[str, int]) -> QueueFiles:
            return self.open_queue(*key, min_offset, end_offset)

        keys = [
            (topic, queue_id)
            for topic, queue_id, _ in self.queue_directories()
            if wants is None or wants(topic)
        ]
        if not self.location.is_url:
            return {key: opened(key) for key in keys}
        with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
            return dict(zip(keys, pool.map(opened, keys), strict=True))

    def index_files(self) -> list[IndexEntries]:
        """Look at the index files, oldest first."""
        sizes = self.settings.sizes
        settled = (
            IndexShape(sizes["index_slot_count"], sizes["index_entry_count"]) if sizes else None
        )
        return open_index(self.filesystem, self.paths.index, settled)

    def lost_log_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the commit offsets of log files that are gone, though one before and one after are there."""
        entries = self.log.entries
        sizes = [after.start_offset - before.start_offset for before, after in pairwise(entries)]
        likely = self.settings.sizes.get("commit_log_file_size") or min(sizes, default=0)
        for before, after in pairwise(entries):
            if 0 < likely < after.start_offset - before.start_offset:
                yield before.start_offset + likely, after.start_offset

    def lost_end(self) -> DamagedRange | None:
        """Return the commit offsets that are gone with the last files of the log; None if none are."""
        return find_lost_end(
            self.log,
            End(self.log.end_offset, ""),
            file_size=self.sizes.commit_log_file_size,
            durable_offset=self.checkpoint.durable.flushed_offset,
            stated_offset=self.checkpoint.durable.flushed_offset,
            queued_offset=self.newest_record_end,
        )

    def newest_record_end(self) -> int:
        """Return where the newest record ends that has a unit in a queue; 0 without one."""
        offset, size = self.newest_unit(EVERYTHING)
        return offset + size if size < PREFILL_SIZE else 0

    def map(self, path: Path, begins: Positions = 0, ends: Positions | None = None) -> ByteArray:
        """Return a file as an array in which the ranges may be read; see ``map_ranges``."""
        return self.filesystem.map_ranges(path, begins, ends)

    def stated_bounds(self) -> Bounds | None:
        """Return what our writer says of the store, None if no word of it can be trusted."""
        return self.checkpoint.stated_bounds(self.log.start_offset)

    @cached_property
    def bounds(self) -> Bounds:
        """How far the store may be read, fixed at the first look."""
        stated = None if self.location.is_url else self.stated_bounds()
        if stated is not None:
            return stated
        if not self.log.entries:
            return Bounds(0, 0, 0)
        start = self.log.start_offset
        if self.location.is_url:
            end = end_of_copy(self.log, *self.newest_unit(self.log.end_offset))
        else:
            end = end_of_log(self.log)
        return Bounds(start, end, min(end, max(start, sum(self.newest_unit(end)))))

    def with_bounds(self, bounds: Bounds) -> StoreView:
        """Fix how far this view is read, and return it. What is unpickled elsewhere looks itself."""
        self.bounds = bounds
        return self

    def newest_unit(self, end_offset: int) -> tuple[int, int]:
        """Return commit offset and size of the newest record below ``end_offset`` that has a unit.

        Zeros if there is none.
        """
        newest = (0, 0)
        for queue in self.open_queues(self.log.start_offset, end_offset).values():
            if queue.end > queue.begin:
                newest = max(newest, queue.unit(queue.end - 1)[:2])
        return newest

    def topic_names(self) -> set[str]:
        """Return the topics that the table, or its backup, names; empty if neither can be read."""
        return topic_names(self.filesystem, self.paths)

    def config_tables(self) -> ConfigTables:
        """Read what the tables in ``config/`` say now."""
        return read_config_tables(self.filesystem, self.paths)
