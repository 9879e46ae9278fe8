"""Index files without checksums, a broker's or an older version's: compared with the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from storage import findings as kinds
from storage.clock import SystemClock
from storage.files.overlay import OverlayFileSystem
from storage.findings import WARNING, Finding
from storage.index.directory import IndexDirectory
from storage.index.follower import LogReader
from storage.index.rebuild import FileRebuild
from storage.view.index.checksums import IndexChecksums
from storage.view.index.index_file import IndexFileView, IndexShape, list_index_files

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.offline.opened import OfflineStore


def index_entries(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Yield the files without checksums that are not what the log makes of them; of a stopped store."""
    if store.is_in_use:
        return
    shape = IndexShape(store.config.index_slot_count, store.config.index_entry_count)
    unknown = [
        path
        for _, size, path in list_index_files(disk, store.paths.index)
        if size == shape.file_size
        and IndexChecksums.find(disk, store.paths.index_checksums / path.name, shape) is None
    ]
    if unknown:
        yield from _unlike_the_log(store, shape, unknown)


def _unlike_the_log(
    store: OfflineStore, shape: IndexShape, unknown: list[Path]
) -> Iterator[Finding]:
    """Make files without checksums again in memory, and yield those that differ.

    A file of records that the log has no more cannot be compared.
    """
    view = OverlayFileSystem(store.paths.root)
    directory = IndexDirectory(
        view, store.paths.index, shape,
        checksums=store.paths.index_checksums, now_ms=SystemClock().now_ms,
    )  # fmt: skip
    recovered = store.recovered
    with (
        closing(directory),
        closing(LogReader(store.filesystem, store.paths.commit_log)) as log,
    ):
        for path in unknown:
            with closing(IndexFileView.open(view, path, shape)) as found:
                if found.header.begin_commit_offset < recovered.min_offset:
                    continue
            rebuild = FileRebuild(
                view, directory, log, directory.paths.index(path),
                min_commit_offset=recovered.min_offset, end_commit_offset=recovered.end_offset,
            )  # fmt: skip
            while rebuild.step():
                pass
            file = directory.file(path)
            is_like = rebuild.is_like(file)
            if file is not directory.opened:
                file.close()
            rebuild.close()
            if not is_like:
                yield Finding(
                    severity=WARNING, kind=kinds.INDEX_ENTRIES, file=f"index/{path.name}",
                    message="its entries are not the keys of the log",
                )  # fmt: skip
