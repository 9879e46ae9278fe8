"""Who follows the log, by name, and from where on each still needs it.

What is before the least of these offsets is needed by nobody: whoever removes old files asks here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

NeededOffset = Callable[[], "int | None"]


class Followers:
    """The followers of one log. Methods are safe to call from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._needs: dict[str, NeededOffset] = {}

    def register(self, name: str, needs: NeededOffset) -> None:
        """Add a follower; ``needs()`` returns from which offset on it needs the log, None: nothing.

        That offset only grows. Raises ValueError for a name that is taken.
        """
        with self._guard:
            if name in self._needs:
                raise ValueError(f"the log has a follower {name!r} already")
            self._needs[name] = needs

    def remove(self, name: str) -> None:
        """Take a follower out; an unknown name is no error."""
        with self._guard:
            self._needs.pop(name, None)

    def offsets(self) -> dict[str, int]:
        """Return from which offset on each follower needs the log, those that need nothing left out."""
        with self._guard:
            needs = list(self._needs.items())
        offsets = {name: needed() for name, needed in needs}
        return {name: offset for name, offset in offsets.items() if offset is not None}

    def needed_offset(self) -> int | None:
        """Return the least of these offsets, None without followers."""
        return min(self.offsets().values(), default=None)
