"""The bytes of index files: against their checksums, and without any against the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.clock import SystemClock
from storage.files.overlay import OverlayFileSystem
from storage.findings import DAMAGE, WARNING, Finding
from storage.index.directory import IndexDirectory
from storage.index.follower import LogReader
from storage.index.rebuild import FileRebuild
from storage.view.index.checksums import IndexChecksums, block_count
from storage.view.index.index_file import IndexFileView, IndexShape, list_index_files

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.offline.opened import OfflineStore

LOOKS: Final = 20  # at a file that may be put to
LOOK_S: Final = 0.05


def index_bytes(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Yield the index files whose bytes are not those that were put.

    The newest file of a store that was not stopped in order is mended by the next start.
    """
    shape = IndexShape(store.config.index_slot_count, store.config.index_entry_count)
    listed = list_index_files(disk, store.paths.index)
    paths = [path for _, size, path in listed if size == shape.file_size]
    unknown = []
    for path in paths:
        checksums = IndexChecksums.find(disk, store.paths.index_checksums / path.name, shape)
        if checksums is None:
            unknown.append(path)
            continue
        with closing(IndexFileView.open(disk, path, shape)) as file:
            problem = _problem(file, checksums)
        if problem:
            is_mended = path == paths[-1] and store.abort_found
            yield _finding(path, problem, WARNING if is_mended else DAMAGE)
    if unknown and not store.is_in_use:
        yield from _unlike_the_log(store, shape, unknown)


def _problem(file: IndexFileView, checksums: IndexChecksums) -> str:
    """Return what is wrong with a file, empty if nothing; looked at again while it is put to."""
    problem = ""
    for _ in range(LOOKS):
        put_count = checksums.put_count
        problem = _problem_now(file, checksums)
        if not problem or (put_count % 2 == 0 and put_count == checksums.put_count):
            break
        time.sleep(LOOK_S)
    return problem


def _problem_now(file: IndexFileView, checksums: IndexChecksums) -> str:
    noted = checksums.newest()
    if noted is not None and noted.sealed and noted.header != file.header_bytes:
        return "its header is not what it was when it was full"
    data, count = file.data(0, file.shape.file_size), block_count(file.shape)
    bad, block = 0, 0
    while (found := checksums.bad_block(data, file.shape, block, count)) >= 0:
        bad, block = bad + 1, found + 1
    begin, end = file.covered
    return (
        f"{bad} of {count} blocks are not as they were put: keys of records from commit offset {begin} to"
        f" {end} may be missing"
        if bad
        else ""
    )


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
                yield _finding(path, "its entries are not the keys of the log", WARNING)


def _finding(path: Path, problem: str, severity: str) -> Finding:
    return Finding(
        severity=severity, kind=kinds.INDEX_FILE, file=f"index/{path.name}", message=problem
    )
