"""Who follows the log, by name, and from where on each still needs it.

What is before the least of these offsets is needed by nobody: whoever removes old files asks here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.log.commit_log import CommitLog

NeededOffset = Callable[[], "int | None"]


class Followers:
    """The followers of one log. Methods are safe to call from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._needs: dict[str, NeededOffset] = {}
        self._yielding: set[str] = set()

    def register(self, name: str, needs: NeededOffset, *, yields: bool = False) -> None:
        """Add a follower; ``needs()`` returns from which offset on it needs the log, None: nothing.

        One that ``yields`` goes on without what is deleted because the disk is full. Raises ValueError
        for a name that is taken.
        """
        with self._guard:
            if name in self._needs:
                raise ValueError(f"the log has a follower {name!r} already")
            self._needs[name] = needs
            if yields:
                self._yielding.add(name)

    def remove(self, name: str) -> None:
        """Take a follower out; an unknown name is no error."""
        with self._guard:
            self._needs.pop(name, None)
            self._yielding.discard(name)

    def offsets(self) -> dict[str, int]:
        """Return from which offset on each follower needs the log, those that need nothing left out."""
        with self._guard:
            needs = list(self._needs.items())
        offsets = {name: needed() for name, needed in needs}
        return {name: offset for name, offset in offsets.items() if offset is not None}

    def needed_offset(self, *, forced: bool = False) -> int | None:
        """Return the least of these offsets, None without followers; with ``forced`` of those that do not yield."""
        offsets = self.offsets()
        kept = offsets.keys() - self._yielding if forced else offsets.keys()
        return min((offsets[name] for name in kept), default=None)


class DurableNeed:
    """What somebody needs of the log who appends copies of records: each record until its copy is durable.

    A call notes from where on the log is needed and where it ends; the note counts once the log is flushed
    as far, and until then the one before it does. Before the first one counts, all of the log is needed.
    """

    def __init__(self, needs: NeededOffset, log: CommitLog) -> None:
        self._needs = needs
        self._log = log
        self._guard = threading.Lock()
        self._durable = 0
        self._noted: tuple[int, int] | None = None  # what was needed, and the end to be flushed

    def __call__(self) -> int | None:
        """Return from which offset on the log is needed, None: nothing of it; from any thread."""
        with self._guard:
            begin = (
                self._log.appended_offset
            )  # first: what is appended from here on is not given up
            need = self._needs()
            needed = begin if need is None else need
            if self._noted is not None:
                self._noted = min(self._noted[0], needed), self._noted[1]
                self._settle()
            if self._noted is None:
                # Copies of what is needed no more were appended before that was said.
                self._noted = needed, self._log.appended_offset
                self._settle()
            self._durable = min(self._durable, needed)
            return None if need is None and self._noted is None else self._durable

    def _settle(self) -> None:
        if self._noted is not None and self._log.flushed_offset >= self._noted[1]:
            self._durable, self._noted = self._noted[0], None
