"""Damaged index files: found by readers or by the scrub, and made again from the log.

An older file is made again beside the others, a chunk of the log at a time, and takes its place; until
then queries are answered from what of it is right, and name the range. The newest file is for the
builder, who deletes it and indexes on from the file before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from storage.index.rebuild import FileRebuild
from storage.index.scrub import IndexScrub

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from storage.clock import Clock
    from storage.files.filesystem import FileSystem
    from storage.index.directory import IndexDirectory
    from storage.index.follower import LogReader

_LOG: Final = logging.getLogger(__name__)


class IndexRepair:
    """Knows which files are damaged. One thread at a time, but for its properties."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: IndexDirectory,
        log: LogReader,
        clock: Clock,
        *,
        scrub_interval_ms: int,
        scrub_bytes_per_s: int,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._log = log
        self._scrub = IndexScrub(
            filesystem, directory, log, clock,
            interval_ms=scrub_interval_ms, bytes_per_s=scrub_bytes_per_s,
        )  # fmt: skip
        self._suspects: set[Path] = set()
        self._damaged: set[Path] = set()
        self._rebuild: FileRebuild | None = None  # of one of the damaged
        self.found_count = 0  # damaged files since the start

    @property
    def scrub_progress(self) -> str:
        """The file that is being checked and how far, empty between two."""
        return self._scrub.position

    @property
    def is_done(self) -> bool:
        """Whether no file is suspected or being made again."""
        return not (self._suspects or self._damaged or self._rebuild)

    def suspect(self, paths: Iterable[Path]) -> None:
        """Have ``find_damaged`` look at files."""
        self._suspects.update(paths)

    def find_damaged(self) -> list[Path]:
        """Look at the files that somebody suspects; return the newest file if it is damaged."""
        suspects = self._suspects | set(self._directory.reported())
        self._suspects.clear()
        for path in sorted(suspects - self._damaged):
            if self._directory.is_damaged(path):
                self._add(path)
        newest = [path for path in self._directory.paths[-1:] if path in self._damaged]
        self._damaged.difference_update(newest)
        return newest

    def _add(self, path: Path) -> None:
        self._damaged.add(path)
        self.found_count += 1
        _LOG.warning("index file %s is damaged; what it held is indexed again", path)

    def step(self, *, min_commit_offset: int, position: int) -> tuple[bool, bool]:
        """Make a damaged file again, a chunk at a time; with none check a little more of the index.

        ``position`` is up to where the files have all keys. Returns whether there is more to do at
        once, and whether a file has taken the place of another. Raises StoreFull.
        """
        if self._rebuild is None:
            self._damaged.intersection_update(self._directory.paths)
            older = self._directory.paths[:-1]
            mine = sorted(self._damaged.intersection(older))
            if not mine:
                found = self._scrub.step(min_commit_offset=min_commit_offset, position=position)
                if found is not None and found not in self._damaged:
                    self._add(found)
                return found is not None, False
            self._scrub.forget()
            self._rebuild = FileRebuild(
                self._filesystem, self._directory, self._log, older.index(mine[0]),
                min_commit_offset=min_commit_offset, end_commit_offset=position,
            )  # fmt: skip
        if self._rebuild.step():
            return True, False
        self._rebuild.take_place()
        self._damaged.discard(self._rebuild.path)
        self._rebuild = None
        return True, True

    def forget_work(self) -> None:
        """Begin again with what was begun: the files are others."""
        self._scrub.forget()
        if self._rebuild is not None:
            self._rebuild.close()
            self._rebuild = None

    def close(self) -> None:
        """Leave what is not repaired to who comes next."""
        self.forget_work()
        self._directory.report(self._damaged)
