"""The growing sequence of index files, as the one who writes them has it: the last is open for puts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from storage.format import index as layout
from storage.format.index import IndexHeader
from storage.format.index_checksums import ChecksumRow, encode_table
from storage.format.names import INDEX_NAME_LENGTH, index_file_name
from storage.index.index_file import IndexFile, IndexKeys
from storage.view.index.checksums import TABLE, file_problem, read_table
from storage.view.index.index_file import IndexShape, list_index_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from storage.files.filesystem import FileSystem


class IndexStart(NamedTuple):
    """From where on the log is indexed: ``skip`` are the keys of the record there that older files have."""

    position: int
    skip: int = 0
    seed: IndexHeader = IndexHeader()  # of the file before


class IndexDirectory:
    """All index files of a store, in order, and their checksums; one process has it.

    ``paths`` are the files that are there. ``rows`` are of all files that should be there but the newest.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        shape: IndexShape,
        *,
        checksums: Path,
        now_ms: Callable[[], int],
    ) -> None:
        """Open the files that are there; those of any other size are left out of ``paths``.

        ``checksums`` is the directory of their table.
        """
        self.directory = directory
        self.checksums = checksums
        self.shape = shape
        self._filesystem = filesystem
        self._now_ms = now_ms
        self._last: IndexFile | None = None
        self.misfits: list[Path] = []
        self.paths: list[Path] = []
        self.rows: dict[int, ChecksumRow] = {}
        self.on_filled: Callable[[IndexFile], None] = IndexFile.close
        self.refresh()

    def refresh(self) -> None:
        """List the files again, as a broker may have left them; none is open on return."""
        self.close()
        self._filesystem.make_directory(self.directory)
        self._filesystem.make_directory(self.checksums)
        listed = list_index_files(self._filesystem, self.directory)
        self.misfits = [path for _, size, path in listed if size != self.shape.file_size]
        self.paths = [path for _, size, path in listed if size == self.shape.file_size]
        self.rows = read_table(self._filesystem, self.checksums)
        self.clear_rebuilds()

    def clear_rebuilds(self) -> None:
        """Remove the file of a rebuild that did not come to its end."""
        for entry in self._filesystem.list_directory(self.checksums):
            if not entry.is_directory and entry.name != TABLE:
                self._unlink(self.checksums / entry.name)

    def path(self, number: int) -> Path:
        """Return where a file stands."""
        return self.directory / f"{number:0{INDEX_NAME_LENGTH}d}"

    @property
    def last(self) -> IndexFile | None:
        """The file that is put to, None without files."""
        if self._last is None and self.paths:
            self._last = self._open(self.paths[-1])
        return self._last

    def _open(self, path: Path) -> IndexFile:
        return IndexFile.open(self._filesystem, path, self.shape, writable=True)

    def headers(self) -> dict[int, IndexHeader]:
        """Return the headers of all files that should be there, oldest first.

        Of a sealed file it is the one that the table has; a blank one of any other that has just gone.
        """
        newest = int(self.paths[-1].name) if self.paths else 0
        found = {number: row.values for number, row in self.rows.items() if number != newest}
        for path in self.paths:
            if int(path.name) not in found:
                found[int(path.name)] = IndexHeader.decode(self.head(path))
        return dict(sorted(found.items()))

    def head(self, path: Path) -> bytes:
        """Return the header of a file as it is now."""
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

    def has_its_header(self, number: int) -> bool:
        """Whether a file has the header that the table has; true of a file without a row."""
        row = self.rows.get(number)
        return row is None or row.header == self.head(self.path(number))

    def start_of(self, number: int, min_commit_offset: int) -> IndexStart:
        """Return where the file of a number begins, or would begin: after the files before it."""
        before = {other: header for other, header in self.headers().items() if other < number}
        seed = before[max(before)] if before else IndexHeader()
        begin = max(seed.end_commit_offset, min_commit_offset)
        skip = 0
        for other in reversed(before) if begin == seed.end_commit_offset else ():
            if self.path(other) not in self.paths:
                break
            file = self._open(self.path(other))
            at_end = file.entries_at_end(begin)
            file.close()
            skip += at_end
            if at_end < before[other].next_entry - 1:
                break
        return IndexStart(begin, skip, seed)

    def put(self, keys: IndexKeys, start: int, count: int) -> int:
        """Put keys from ``start`` on into the last file until it is full or ``count`` is reached.

        Returns the first key not put. As with a broker, a full file gets its successor with the next
        record, keyed or not; then it is given to ``on_filled``. Raises StoreFull, and has put nothing then;
        try again when there is room.
        """
        last = self.last
        if last is None or last.is_full:
            filled, last = last, self._roll(last)
            if filled is not None:  # now: if the successor's blocks fail, it would be lost
                self.on_filled(filled)
        return last.put(keys, start, count)

    def _roll(self, full: IndexFile | None) -> IndexFile:
        header = full.header if full is not None else IndexHeader()
        path = self.directory / self._next_name()
        self._last = IndexFile.create(
            self._filesystem,
            path,
            self.shape,
            seed_timestamp_ms=header.end_timestamp_ms,
            seed_commit_offset=header.end_commit_offset,
        )
        self.paths.append(path)
        return self._last

    def _next_name(self) -> str:
        newest = max(self.headers(), default=0)
        # Names sort files: a clock that stands still or goes back must not put one in between.
        return f"{max(int(index_file_name(self._now_ms())), newest + 1):0{INDEX_NAME_LENGTH}d}"

    def take_back(self, header: bytes, *, clean: bool) -> bool:
        """Take the newest file back to a header; return whether it is right now.

        After a ``clean`` stop it must have its checksum. A file that counts fewer entries is an old copy.
        """
        last = self.last
        assert last is not None
        row = self.rows.get(last.number)
        if clean and row is not None and row.header == header:
            return last.header_bytes == header and last.checksum() == row.checksum
        values = IndexHeader.decode(header)
        if last.header.next_entry < values.next_entry:
            return False
        last.truncate(values)
        return True

    def keep(self, numbers: Collection[int]) -> None:
        """Delete all files but these, newest first; durable on return."""
        self.close()
        if any(number not in numbers for number in self.rows):
            self._write({n: row for n, row in self.rows.items() if n in numbers})
        for path in reversed([*self.paths, *self.misfits]):
            if int(path.name) not in numbers or path in self.misfits:
                self._unlink(path)
        self.paths = [path for path in self.paths if int(path.name) in numbers]
        self.misfits = []
        self._filesystem.sync_directory(self.directory)

    def _unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.unlink(path)

    def drop(self, number: int) -> None:
        """Delete one file that is not the last, with its row: the log has its records no more; durable on return."""
        self._write({other: row for other, row in self.rows.items() if other != number})
        self.discard(number)

    def discard(self, number: int) -> None:
        """Delete a damaged file that is not the last; its row says what is missing. Durable on return."""
        self._unlink(self.path(number))
        self.paths = [path for path in self.paths if int(path.name) != number]
        self._filesystem.sync_directory(self.directory)

    def put_in_place(self, file: IndexFile) -> None:
        """Put a rebuilt file, which is synced, in its place unless the same is there; durable on return."""
        path, row = self.path(file.number), self._row_of(file)
        is_there = path in self.paths and not file_problem(
            self._filesystem, path, self.shape.file_size, self.shape, row
        )
        if not is_there:
            self._filesystem.rename(file.path, path)
            self._filesystem.sync_directory(self.directory)
            self.paths = sorted({*self.paths, path})
        self._write(self.rows | {row.number: row})

    def seal(self, file: IndexFile) -> None:
        """Note the checksum of a file that is synced; durable on return."""
        self._write(self.rows | {file.number: self._row_of(file)})

    def _row_of(self, file: IndexFile) -> ChecksumRow:
        return ChecksumRow(file.number, file.header_bytes, file.checksum(), self._now_ms())

    def note_checked(self, number: int) -> None:
        """Note that a file has its checksum now."""
        self._write(self.rows | {number: replace(self.rows[number], checked_ms=self._now_ms())})

    def _write(self, rows: dict[int, ChecksumRow]) -> None:
        data = encode_table(rows.values())
        self._filesystem.write_atomically(self.checksums / TABLE, data, backup=False)
        self.rows = rows

    def forget_changed(self) -> None:
        """Forget the checksums of files that a broker has put to, and of those that it has deleted."""
        rows = {number: row for number, row in self.rows.items() if self.has_its_header(number)}
        if rows != self.rows:
            self._write(rows)

    def expired(self, min_commit_offset: int) -> list[int]:
        """Return the oldest files, as far as all their records lie before a commit offset; never the last."""
        found = []
        for number, header in list(self.headers().items())[:-1]:
            if header.next_entry <= 1 or header.end_commit_offset >= min_commit_offset:
                break
            found.append(number)
        return found

    def sealed(self) -> list[int]:
        """Return the files but the newest, oldest first."""
        return [int(path.name) for path in self.paths[:-1]]

    def missing(self) -> list[int]:
        """Return the files that should be there and are not, or have another size, oldest first."""
        fitting = {
            number
            for number, size, _ in list_index_files(self._filesystem, self.directory)
            if size == self.shape.file_size
        }
        return sorted({*self.rows, *(int(path.name) for path in self.paths)} - fitting)

    def sync(self) -> None:
        """Make the last file and all names durable."""
        if self._last is not None:
            self._last.sync()
        self._filesystem.sync_directory(self.directory)

    def close(self) -> None:
        """Close the open file."""
        if self._last is not None:
            self._last.close()
            self._last = None
