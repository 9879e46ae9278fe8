"""The commit log in windows read past the page cache, with every checksum checked.

Only what is durable is read, so no byte of it changes meanwhile.

It is a walk of its own beside ``view.log.walk``, which takes mapped files: through a map all of the log would
pass the page cache, a sector that cannot be read would be a signal and not an error, and the record after
damage is looked for up to the end of the file in one go, where a scrub has to rest between its steps. What
a record is, and whether it is whole, is decided by the same kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.files.mapped_file_queue import FileEntry, list_trimmed_files
from storage.files.uncached import PAGE_SIZE, aligned_array
from storage.format.record import blank_end
from storage.format.record_layout import MAGIC_POSITION, MAGIC_V1, MAGIC_V2
from storage.kernels.columns import (
    CHECK_ALL,
    STOP_BLANK,
    STOP_END,
    STOP_ROWS_FULL,
    STOP_TRUNCATED,
    new_rows,
    stop_text,
)
from storage.kernels.scan import find_record, scan_records
from storage.view.log.walk import DamagedRange, RecordRun

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, File, FileSystem

WINDOW: Final = 4 << 20
ROWS_MAX: Final = 16_384
SEARCHED: Final = 16 << 20  # at once, for the next record after damage
OVERLAP: Final = (
    SEARCHED // 2
)  # of what is searched: longer records that follow damage are passed over
MAGICS: Final = (MAGIC_V1, MAGIC_V2)


class LogWindows:
    """Walks the log from ``position``, a window at a time."""

    def __init__(self, filesystem: FileSystem, directory: Path, *, window: int = WINDOW) -> None:
        self.position = 0
        self.read_bytes = 0
        self._filesystem = filesystem
        self._directory = directory
        self._window = window
        self._buffer: ByteArray | None = None
        self._rows = new_rows(ROWS_MAX)
        self._entries: list[FileEntry] = []
        self._file: tuple[FileEntry, File] | None = None
        self._damage: tuple[int, str] | None = (
            None  # where it begins, why; its end is not found yet
        )

    def rewind(self, position: int) -> None:
        """Go on from ``position``, where a record or a file begins."""
        self.position = position
        self._damage = None
        self._entries = []

    @property
    def resume_position(self) -> int:
        """Where a walk that is interrupted now is to go on: before damage whose end is not found yet."""
        return self.position if self._damage is None else self._damage[0]

    def release(self) -> None:
        """Let go of file and memory until the next step."""
        self._close_file()
        self._buffer = None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file[1].close()
            self._file = None

    def step(self, limit: int) -> RecordRun | DamagedRange | None:
        """Go on, not beyond ``limit``; return what was met, None if that is not known yet.

        The run's arrays are good until the next step.
        """
        if self.position >= limit:
            return self._damage_until(self.position)
        entry = self._entry_at(self.position)
        if entry is None:
            self._pass_missing(limit)
            return None
        wanted = self._window if self._damage is None else SEARCHED
        try:
            data = self._read(entry, min(wanted, entry.end_offset - self.position))
        except OSError as error:
            begin = self.position
            self.position = min(begin - begin % self._window + self._window, entry.end_offset)
            self._note(begin, f"cannot be read: {error.strerror or error}")
            return None
        data = data[: limit - self.position]
        return self._scan(entry, data, limit) if self._damage is None else self._search(entry, data)

    def _scan(
        self, entry: FileEntry, data: ByteArray, limit: int
    ) -> RecordRun | DamagedRange | None:
        begin = self.position
        count, position, stop = scan_records(data, 0, len(data), begin, CHECK_ALL, self._rows)
        if stop == STOP_TRUNCATED and not position:
            longer = self._claimed(data)
            if len(data) < longer <= min(entry.end_offset, limit) - begin:
                data = self._read(entry, longer)
                count, position, stop = scan_records(data, 0, longer, begin, CHECK_ALL, self._rows)
        self.position = begin + int(position)
        run = RecordRun(data, begin, self._rows[:count], begin, self.position) if count else None
        at_window_end = stop == STOP_TRUNCATED and count > 0
        if stop in (STOP_END, STOP_ROWS_FULL) or at_window_end:
            return run
        if stop == STOP_BLANK and begin + blank_end(data.data, int(position)) == entry.end_offset:
            self.position = entry.end_offset
            return run
        if run is not None:
            return run  # the next step begins with what is wrong
        self.position = begin + 1
        self._note(begin, stop_text(stop))
        return None

    def _search(self, entry: FileEntry, data: ByteArray) -> DamagedRange | None:
        """Look for the next record after damage."""
        found = int(find_record(data, 0, len(data), self.position))
        if found >= 0:
            self.position += found
            return self._damage_until(self.position)
        end = self.position + len(data)
        is_all = end == entry.end_offset or len(data) <= OVERLAP
        self.position = end if is_all else end - OVERLAP
        return None

    def _note(self, begin: int, reason: str) -> None:
        if self._damage is None:
            self._damage = begin, reason

    def _damage_until(self, end: int) -> DamagedRange | None:
        if self._damage is None:
            return None
        (begin, reason), self._damage = self._damage, None
        self._buffer = None  # it had to be a long one
        return DamagedRange(begin, end, reason)

    def _pass_missing(self, limit: int) -> None:
        begin = self.position
        starts = [entry.start_offset for entry in self._entries if entry.start_offset > begin]
        self.position = min(min(starts, default=limit), limit)
        self._note(begin, "the file is missing")

    def _claimed(self, data: ByteArray) -> int:
        """Return how long the record at the begin of ``data`` says that it is; 0 if it is not one."""
        head = data[: MAGIC_POSITION + 4].tobytes()
        magic = int.from_bytes(head[MAGIC_POSITION:], "big")
        return int.from_bytes(head[:4], "big") if magic in MAGICS else 0

    def _entry_at(self, commit_offset: int) -> FileEntry | None:
        entry = self._known_entry(commit_offset)
        if entry is None:
            self._entries = list_trimmed_files(self._filesystem, self._directory)
            entry = self._known_entry(commit_offset)
        return entry

    def _known_entry(self, commit_offset: int) -> FileEntry | None:
        return next(
            (
                each
                for each in self._entries
                if each.start_offset <= commit_offset < each.end_offset
            ),
            None,
        )

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
