"""The commit log in windows read past the page cache, with every checksum checked.

Only what is durable is read, so no byte of it changes meanwhile. Mapped files would show what the page cache
has, and not the device; a sector that cannot be read would be a signal and not an error. So each window is
read into memory, and the walk of the log goes through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.files.mapped_file_queue import FileEntry, list_trimmed_files
from storage.files.uncached import PAGE_SIZE, aligned_array
from storage.format.record_layout import MAGIC_POSITION, MAGIC_V1, MAGIC_V2
from storage.view.log.walk import DamagedRange, RecordRun, walk_range

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, File, FileSystem

WINDOW: Final = 4 << 20
SEARCHED: Final = 16 << 20  # at once, for the next record after damage
OVERLAP: Final = (
    SEARCHED // 2
)  # of what is searched: longer records that follow damage are passed over
MAGICS: Final = (MAGIC_V1, MAGIC_V2)


class LogWindows:
    """Walks the log from ``position``, a window at a time."""

    def __init__(self, filesystem: FileSystem, directory: Path, *, window: int = WINDOW) -> None:
        self.position = 0
        """Where the next window begins: where a record or a file does, or damage goes on."""
        self.read_bytes = 0
        self._filesystem = filesystem
        self._directory = directory
        self._window = window
        self._length = window  # of the next window
        self._buffer: ByteArray | None = None
        self._entries: list[FileEntry] = []
        self._file: tuple[FileEntry, File] | None = None

    def rewind(self, position: int) -> None:
        """Go on from ``position``, where a record or a file begins."""
        self.position, self._length = position, self._window
        self._entries = []

    def release(self) -> None:
        """Let go of file and memory until the next step."""
        self._close_file()
        self._buffer = None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file[1].close()
            self._file = None

    def step(self, limit: int) -> Iterator[RecordRun | DamagedRange]:
        """Go on by a window, not beyond ``limit``; yield what is in it, each good until the next.

        Of what is cut at the window's end nothing is yielded: the next window begins there, and is longer
        where it was at its begin.
        """
        begin = self.position
        entry = self._entry_at(begin)
        if entry is None:
            starts = (each.start_offset for each in self._entries if each.start_offset > begin)
            self._go_to(min([limit, *starts]))
            yield DamagedRange(begin, self.position, "the file is missing")
            return
        end = min(entry.end_offset, limit)
        try:
            data = self._read(entry, min(self._length, end - begin))
        except OSError as error:
            self._go_to(min(begin - begin % self._window + self._window, end))
            reason = f"cannot be read: {error.strerror or error}"
            yield DamagedRange(begin, self.position, reason)
            return
        at, data_end = begin, begin + len(data)
        for met in walk_range(data, begin, begin, data_end, file_end_offset=entry.end_offset):
            if isinstance(met, DamagedRange) and met.end_offset == data_end < end:
                yield from self._go_on_after(met, data)
                return
            yield met
            at = met.end_offset
        self._go_to(end if at < data_end else data_end)  # a blank ends the file

    def _go_on_after(self, cut: DamagedRange, data: ByteArray) -> Iterator[DamagedRange]:
        """Read on from what is cut at the window's end; what is longer than may be searched at once is damage."""
        if cut.begin_offset > self.position:
            self._go_to(cut.begin_offset)
        elif len(data) < max(SEARCHED, self._claimed(data)):
            self._length = 2 * max(self._length, len(data))
        else:
            self._go_to(cut.end_offset - OVERLAP)
            yield DamagedRange(cut.begin_offset, self.position, cut.reason)

    def _go_to(self, position: int) -> None:
        self.position, self._length = position, self._window

    def _claimed(self, data: ByteArray) -> int:
        """Return how long the record at the begin of ``data`` says that it is; 0 if it is not one."""
        head = data[: MAGIC_POSITION + 4].tobytes()
        magic = int.from_bytes(head[MAGIC_POSITION:], "big")
        return int.from_bytes(head[:4], "big") if magic in MAGICS else 0

    def _entry_at(self, commit_offset: int) -> FileEntry | None:
        for _ in range(2):
            for each in self._entries:
                if each.start_offset <= commit_offset < each.end_offset:
                    return each
            self._entries = list_trimmed_files(self._filesystem, self._directory)
        return None

    def _read(self, entry: FileEntry, length: int) -> ByteArray:
        """Return bytes of a file from ``position`` on."""
        place = self.position - entry.start_offset
        lead = place % PAGE_SIZE
        size = -(-(lead + length) // PAGE_SIZE) * PAGE_SIZE
        if self._buffer is None or len(self._buffer) < size:
            self._buffer = aligned_array(max(size, self._window + PAGE_SIZE))
        if self._file is None or self._file[0] != entry:
            self._close_file()
            self._file = entry, self._filesystem.open(entry.path, writable=False)
        count = self._file[1].read_uncached(self._buffer[:size], place - lead)
        self.read_bytes += count
        return self._buffer[lead : min(lead + length, count)]
