"""The slow look at every sealed index file, and the rebuild of those that are damaged or missing.

A file that does not have its checksum is deleted, so that queries name its range. A missing file is rebuilt
at once. A file without a checksum, as a broker leaves it, is rebuilt as well, and replaced unless it is the
same. The newest file is the builder's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.index.rebuild import FileRebuild
from storage.view.index.checksums import READ_BYTES, read_checksum, used_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.clock import Clock
    from storage.files.filesystem import File, FileSystem
    from storage.index.directory import IndexDirectory
    from storage.index.follower import LogReader

_LOG: Final = logging.getLogger(__name__)
LOOK_S: Final = 60.0  # between looks whether a file is due


class ScrubStep(NamedTuple):
    """Whether there is more to do at once, and whether a file has taken the place of another."""

    goes_on: bool
    replaced: bool = False


class _Reading(NamedTuple):
    """A file whose checksum is being made."""

    number: int
    file: File
    checksums: Iterator[int]


class IndexScrub:
    """Checks the files of an index, the one that was checked longest ago first. One thread at a time."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: IndexDirectory,
        log: LogReader,
        clock: Clock,
        *,
        interval_ms: int,
        bytes_per_s: int,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._log = log
        self._clock = clock
        self._interval_ms = interval_ms
        self._bytes_per_s = bytes_per_s
        self._due_at = clock.monotonic()
        self._missing: set[int] = set()
        self._asked: set[int] = set()  # files to be checked at once
        self._reading: _Reading | None = None
        self._checksum = 0  # of what was read of that file
        self._rebuild: FileRebuild | None = None
        self.damaged_count = 0
        """How many files were found to be damaged or missing since the start."""

    @property
    def position(self) -> str:
        """The file that is checked or rebuilt, empty between two."""
        if self._rebuild is not None:
            return f"{self._rebuild.path.name} rebuilt up to {self._rebuild.position}"
        return "" if self._reading is None else self._directory.path(self._reading.number).name

    @property
    def is_done(self) -> bool:
        """Whether no file is missing, and every one was checked that was asked for."""
        return not (self._missing or self._asked)

    def check_all(self) -> None:
        """Check every sealed file at once."""
        self._asked = set(self._directory.sealed())

    def note_missing(self, numbers: Iterable[int]) -> None:
        """Rebuild these files, which are not the newest."""
        for number in set(numbers) - self._missing:
            self._give_up(number, "is missing")

    def _give_up(self, number: int, problem: str) -> None:
        self.damaged_count += 1
        _LOG.warning(
            "index file %s %s; it is rebuilt from the log", self._directory.path(number), problem
        )
        self._directory.discard(number)
        self._missing.add(number)

    def step(self, *, min_commit_offset: int, position: int) -> ScrubStep:
        """Rebuild or check a little more if it is time. Raises StoreFull.

        ``position`` is up to where the files have all keys.
        """
        if self._rebuild is not None:
            return self._go_on_with(self._rebuild)
        number = min(self._missing, default=None)
        if number is None:
            is_due = self._interval_ms > 0 and self._clock.monotonic() >= self._due_at
            if not is_due and not self._asked:
                return ScrubStep(goes_on=False)
            if self._reading is not None:
                return self._read_on(self._reading)
            number = self._due()
            if number is None:
                self._asked.clear()
                self._due_at = self._clock.monotonic() + LOOK_S
                return ScrubStep(goes_on=False)
            row = self._directory.rows.get(number)
            if row is not None:
                file = self._filesystem.open(self._directory.path(number), writable=False)
                checksums = read_checksum(file, used_bytes(row.header, self._directory.shape))
                self._reading, self._checksum = _Reading(number, file, checksums), 0
                return ScrubStep(bool(self._asked))
        self._rebuild = FileRebuild(
            self._filesystem, self._directory, self._log, number,
            min_commit_offset=min_commit_offset, end_commit_offset=position,
        )  # fmt: skip
        return ScrubStep(goes_on=True)

    def _due(self) -> int | None:
        """Return the file to look at: one without a checksum, or the one that was checked longest ago."""
        now_ms, due = self._clock.now_ms(), []
        for number in self._directory.sealed():
            row = self._directory.rows.get(number)
            if row is None:
                return number
            is_old = not 0 <= now_ms - row.checked_ms < self._interval_ms
            if number in self._asked if self._asked else is_old:
                due.append((row.checked_ms, number))
        return min(due)[1] if due else None

    def _read_on(self, reading: _Reading) -> ScrubStep:
        checksum = next(reading.checksums, None)
        if checksum is not None:
            self._checksum = checksum
            self._rest(READ_BYTES)
            return ScrubStep(bool(self._asked))
        number = reading.number
        self._asked.discard(number)
        self._stop_reading()
        if self._checksum == self._directory.rows[number].checksum:
            self._directory.note_checked(number)
            return ScrubStep(bool(self._asked))
        self._give_up(number, "is damaged")
        return ScrubStep(goes_on=True)

    def _go_on_with(self, rebuild: FileRebuild) -> ScrubStep:
        is_urgent = bool(self._missing or self._asked)
        if not is_urgent and self._clock.monotonic() < self._due_at:
            return ScrubStep(goes_on=False)
        position = rebuild.position
        goes_on = rebuild.step()
        self._rest(rebuild.position - position)
        if goes_on:
            return ScrubStep(is_urgent)
        rebuild.take_place()
        self._rebuild = None
        self._missing.discard(rebuild.number)
        self._asked.discard(rebuild.number)
        return ScrubStep(bool(self._missing or self._asked), replaced=True)

    def _rest(self, byte_count: int) -> None:
        """Put the next step off after so many bytes."""
        self._due_at = self._clock.monotonic() + byte_count / self._bytes_per_s

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.file.close()
            self._reading = None

    def forget(self) -> None:
        """Begin again with the files that there are now."""
        self._missing.clear()
        self._stop_reading()
        if self._rebuild is not None:
            self._rebuild.close()
            self._rebuild = None
