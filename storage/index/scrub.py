"""The slow look at every block of the index, so that damage is found before somebody asks.

Files whose checksums are of what was found (a broker's, or an older version's) are compared with the
log: each is made again beside the others, and takes the place of the one found unless both are equal.
The checksums say when a file was checked last, so that a restart goes on with the next file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.format.index_checksums import BLOCK_WORDS_MAX
from storage.index.rebuild import FileRebuild

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.files.filesystem import FileSystem
    from storage.index.directory import IndexDirectory
    from storage.index.follower import LogReader
    from storage.index.index_file import IndexFile

BLOCKS_AT_ONCE: Final = 16_384  # 5 MiB of entries
LOOK_S: Final = 60.0  # between looks whether a file is due


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
        self._file: IndexFile | None = None  # that is being checked, from block ``_block`` on
        self._is_last = False
        self._block = 0
        self._rebuild: FileRebuild | None = None  # that a file is compared with
        self._first = True

    @property
    def position(self) -> str:
        """The file that is being checked and how far, empty between two."""
        if self._rebuild is not None:
            return f"{self._rebuild.path.name} compared with the log"
        file = self._file
        if file is None:
            return ""
        return f"{file.path.name} block {self._block} of {file.used_blocks}"

    def forget(self) -> None:
        """Begin again with the files that there are now."""
        if self._file is not None and not self._is_last:
            self._file.close()
        self._file = None
        if self._rebuild is not None:
            self._rebuild.close()
            self._rebuild = None

    def step(self, *, min_commit_offset: int, position: int) -> Path | None:
        """Check a little more if it is time; return a file that was found to be damaged.

        ``position`` is up to where the files have all keys. Raises StoreFull.
        """
        if self._interval_ms <= 0 or self._clock.monotonic() < self._due_at:
            return None
        if self._rebuild is not None:
            return self._compare(self._rebuild)
        if self._file is None:
            self._choose(min_commit_offset, position)
            return None
        return self._check(self._file)

    def _choose(self, min_commit_offset: int, position: int) -> None:
        """Take the file that is due: not proven, not checked for the interval, or the last at first."""
        now_ms = self._clock.now_ms()
        due = None
        for place, noted in enumerate(self._directory.noted()):
            is_last = place == len(self._directory.paths) - 1
            if noted is None or not noted.proven:
                self._rebuild = FileRebuild(
                    self._filesystem, self._directory, self._log, place,
                    min_commit_offset=min_commit_offset, end_commit_offset=position,
                )  # fmt: skip
                return
            since_ms = now_ms - noted.checked_ms
            if (is_last and self._first) or not 0 <= since_ms < self._interval_ms:
                due = min(due or (noted.checked_ms, place), (noted.checked_ms, place))
        self._first = False
        if due is None:
            self._due_at = self._clock.monotonic() + LOOK_S
            return
        last = self._directory.last
        path = self._directory.paths[due[1]]
        self._is_last = last is not None and path == last.path
        self._file = last if self._is_last else self._directory.open(path)
        self._block = 0

    def _check(self, file: IndexFile) -> Path | None:
        """Check the next blocks of a file."""
        if self._is_last and file is not self._directory.opened:
            self._file = None  # it was closed, and another is the last
            return None
        end = min(self._block + BLOCKS_AT_ONCE, file.used_blocks)
        is_bad = file.has_bad_block(self._block, end)
        self._rest(4 * BLOCK_WORDS_MAX * (end - self._block))
        self._block = end
        if not is_bad and end < file.used_blocks:
            return None
        path = file.path
        if not is_bad:
            file.note_checked(self._clock.now_ms())
        self.forget()
        return path if is_bad else None

    def _rest(self, byte_count: int) -> None:
        """Put the next step off after so many bytes."""
        self._due_at = self._clock.monotonic() + byte_count / self._bytes_per_s

    def _compare(self, rebuild: FileRebuild) -> Path | None:
        """Read on; at the end believe the file found, or have it replaced."""
        position = rebuild.position
        goes_on = rebuild.step()
        self._rest(rebuild.position - position)
        if goes_on:
            return None
        file = self._directory.file(rebuild.path)
        is_like = rebuild.is_like(file)
        if is_like:
            file.note_checked(self._clock.now_ms(), proven=True)
        if file is not self._directory.opened:
            file.close()
        self.forget()
        return None if is_like else rebuild.path
