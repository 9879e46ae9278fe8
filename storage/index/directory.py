"""The growing sequence of index files, as the one who writes them has it: the last is open for puts."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.format import index as layout
from storage.format.index import IndexHeader
from storage.format.index_checksums import ChecksumRecord
from storage.format.names import INDEX_NAME_LENGTH, index_file_name, parse_index_file_name
from storage.index.index_file import IndexFile, Int64s
from storage.view.index.checksums import DAMAGED_SUFFIX, IndexChecksums, report_damage
from storage.view.index.index_file import IndexShape, list_index_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from storage.files.filesystem import FileSystem


class IndexDirectory:
    """All index files of a store, in order; one process has it."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        shape: IndexShape,
        *,
        checksums: Path,
        now_ms: Callable[[], int],
        new_name: Callable[[], str] | None = None,
    ) -> None:
        """Open the files that are there; those of any other size are left out of ``files``.

        ``checksums`` is the directory of their checksums.
        ``new_name`` gives new files their names instead of the clock.
        """
        self.directory = directory
        self.checksums = checksums
        self.shape = shape
        self._filesystem = filesystem
        self._now_ms = now_ms
        self._new_name = new_name
        self._last: IndexFile | None = None
        self.misfits: list[Path] = []
        self.paths: list[Path] = []
        filesystem.make_directory(directory)
        filesystem.make_directory(checksums)
        self.refresh()

    def refresh(self) -> None:
        """List the files again, as a broker may have left them; none is open on return."""
        self.close()
        listed = list_index_files(self._filesystem, self.directory)
        self.misfits = [path for _, size, path in listed if size != self.shape.file_size]
        self.paths = [path for _, size, path in listed if size == self.shape.file_size]

    def is_listed(self) -> bool:
        """Whether the directory holds the files of ``paths`` and no others of an index."""
        there = [path for _, _, path in list_index_files(self._filesystem, self.directory)]
        return there == self.paths

    @property
    def last(self) -> IndexFile | None:
        """The file that is put to, None without files."""
        if self._last is None and self.paths:
            self._last = self.open(self.paths[-1])
        return self._last

    @property
    def opened(self) -> IndexFile | None:
        """The last file if it is open."""
        return self._last

    def file(self, path: Path) -> IndexFile:
        """Return the last file, or open one of the others, which is the caller's to close."""
        last = self.last
        return last if last is not None and path == last.path else self.open(path)

    def open(self, path: Path) -> IndexFile:
        """Map one of the files for writing."""
        return IndexFile.open_for_puts(
            self._filesystem, path, self.shape, checksum_path=self.checksums / path.name
        )

    def headers(self) -> list[IndexHeader]:
        """Headers of all files, oldest first; a blank one of a file that is gone."""
        return [IndexHeader.decode(self._head(path)) for path in self.paths]

    def noted_headers(self) -> list[IndexHeader]:
        """Headers of all files, oldest first, those of sealed files as they were noted."""
        found = []
        for path in self.paths:
            noted = self._noted(path)
            head = noted.header if noted is not None and noted.sealed else self._head(path)
            found.append(IndexHeader.decode(head))
        return found

    def noted(self) -> list[ChecksumRecord | None]:
        """Return what was last noted of each file, oldest first."""
        return [self._noted(path) for path in self.paths]

    def _noted(self, path: Path) -> ChecksumRecord | None:
        checksums = IndexChecksums.find(self._filesystem, self.checksums / path.name, self.shape)
        return checksums.newest() if checksums is not None else None

    def entries_at_end(self, place: int, commit_offset: int) -> int:
        """Return how many entries at the end of a file are of the record at ``commit_offset``."""
        file = self.open(self.paths[place])
        try:
            return file.entries_at_end(commit_offset)
        finally:
            file.close()

    def _head(self, path: Path) -> bytes:
        if self._last is not None and path == self._last.path:
            return self._last.header_bytes
        try:
            file = self._filesystem.open(path, writable=False)
        except FileNotFoundError:
            return IndexHeader().encode()
        try:
            return file.pread(layout.HEADER_SIZE, 0)
        finally:
            file.close()

    def put(
        self,
        hashes: Int64s,
        commit_offsets: Int64s,
        store_timestamps: Int64s,
        start: int,
        count: int,
    ) -> tuple[int, IndexFile | None]:
        """Put keys from ``start`` on into the last file until it is full or ``count`` is reached.

        Returns the first key not put, and None; or, when the last file is found full, ``start`` and
        that file: its successor is there then and takes the next call's keys. As with a broker, a
        full file gets its successor with the next record, keyed or not. Raises StoreFull, and has
        put nothing then; try again when there is room.
        """
        last = self.last
        if last is None or last.is_full:
            filled, last = last, self._roll(last)
            if filled is not None:
                return start, filled  # now: if the successor's blocks fail, it would be lost
        return last.put(hashes, commit_offsets, store_timestamps, start, count), None

    def _roll(self, full: IndexFile | None) -> IndexFile:
        header = full.header if full is not None else IndexHeader()
        path = self.directory / self._next_name()
        self._last = IndexFile.create(
            self._filesystem,
            path,
            self.shape,
            checksum_path=self.checksums / path.name,
            seed_timestamp_ms=header.end_timestamp_ms,
            seed_commit_offset=header.end_commit_offset,
        )
        self.paths.append(path)
        return self._last

    def _next_name(self) -> str:
        if self._new_name is not None:
            return self._new_name()
        name = index_file_name(self._now_ms())
        newest = parse_index_file_name(self.paths[-1].name) or 0 if self.paths else 0
        # Names sort files: a clock that stands still or goes back must not put one in between.
        return f"{max(int(name), newest + 1):0{INDEX_NAME_LENGTH}d}"

    def forget(self, commit_offset: int, timestamp_of: Callable[[int], int]) -> None:
        """Take back the entries of the newest record, which may lie in several files.

        Files that have no others are deleted. See ``IndexFile.forget``.
        """
        while (last := self.last) is not None:
            count = last.entries_at_end(commit_offset)
            if count < last.header.next_entry - 1:
                if count:
                    last.forget(count, timestamp_of)
                return
            self.drop_from(len(self.paths) - 1)

    def truncate_last(self, header: IndexHeader) -> None:
        """Take the last file back to ``header``; see ``IndexFile.truncate``."""
        last = self.last
        if last is not None:
            last.truncate(header)

    def drop_from(self, position: int) -> None:
        """Delete the files ``[position:]``, newest first; durable on return."""
        self.keep(self.paths[:position])

    def keep(self, paths: Collection[Path]) -> None:
        """Delete all files but these, newest first; durable on return."""
        if self._last is not None:
            self._last.close()
            self._last = None
        for path in reversed(self.paths):
            if path not in paths:
                self._unlink(path)
        self.paths = [path for path in self.paths if path in paths]
        self._filesystem.sync_directory(self.checksums)
        self._filesystem.sync_directory(self.directory)

    def _unlink(self, path: Path) -> None:
        """Remove a file and its checksums, these first: without the file they say that it is lost."""
        for each in (self.checksums / path.name, path):
            with suppress(FileNotFoundError):
                self._filesystem.unlink(each)

    def drop(self, path: Path) -> None:
        """Delete one file that is not the last; durable on return."""
        self._unlink(path)
        self.paths.remove(path)
        self._filesystem.sync_directory(self.checksums)
        self._filesystem.sync_directory(self.directory)

    def expired(self, min_commit_offset: int) -> list[Path]:
        """Return the oldest files, as far as all their records lie before a commit offset; never the last."""
        found = []
        for path, header in zip(self.paths[:-1], self.noted_headers(), strict=False):
            if header.next_entry <= 1 or header.end_commit_offset >= min_commit_offset:
                break
            found.append(path)
        return found

    def drop_orphans(self) -> None:
        """Delete the checksums of files that are not there."""
        names = {path.name for path in self.paths}
        for _, _, path in list_index_files(self._filesystem, self.checksums):
            if path.name not in names:
                with suppress(FileNotFoundError):
                    self._filesystem.unlink(path)

    def drop_misfits(self) -> None:
        """Delete the files whose size is not the shape's; durable on return."""
        for path in self.misfits:
            self._unlink(path)
        self.misfits.clear()
        self._filesystem.sync_directory(self.directory)

    def reported(self) -> list[Path]:
        """Return the files that readers have found to be damaged since the last call."""
        found = []
        for entry in self._filesystem.list_directory(self.checksums):
            if entry.name.endswith(DAMAGED_SUFFIX):
                with suppress(FileNotFoundError):
                    self._filesystem.unlink(self.checksums / entry.name)
                found.append(self.directory / entry.name.removesuffix(DAMAGED_SUFFIX))
        return [path for path in self.paths if path in found]

    def unlike_noted(self) -> list[Path]:
        """Return the sealed files whose headers are not those that were noted, oldest first."""
        found = []
        for path in self.paths:
            noted = self._noted(path)
            if noted is not None and noted.sealed and noted.header != self._head(path):
                found.append(path)
        return found

    def report(self, paths: Collection[Path]) -> None:
        """Have files looked at again by who comes next."""
        for path in paths:
            report_damage(self._filesystem, self.checksums, path.name)

    def is_damaged(self, path: Path) -> bool:
        """Whether bytes of a file are known to be others than those that were put."""
        if self._last is not None and path == self._last.path:
            return self._last.is_damaged()
        try:
            file = self.open(path)
        except FileNotFoundError:
            return False  # which is for ``lost`` to say
        try:
            return file.is_damaged()
        finally:
            file.close()

    def lost(self) -> list[Path]:
        """Return the listed files that are gone, oldest first."""
        there = {path for _, _, path in list_index_files(self._filesystem, self.directory)}
        return [path for path in self.paths if path not in there]

    def give_up(self, lost: Collection[Path]) -> None:
        """Forget files that are gone."""
        self._filesystem.make_directory(self.directory)
        self._filesystem.make_directory(self.checksums)
        self.keep([path for path in self.paths if path not in lost])

    def sync(self) -> None:
        """Make the last file and all names durable."""
        if self._last is not None:
            self._last.sync()
        self._filesystem.sync_directory(self.checksums)
        self._filesystem.sync_directory(self.directory)

    def close(self) -> None:
        """Close the open file."""
        if self._last is not None:
            self._last.close()
            self._last = None
