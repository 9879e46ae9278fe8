"""What an acknowledgement waits for, and what followers are shown: one row of a table for each mode.

A row names positions of the log, each of which only grows: a record is acknowledged once every
position of ``waits_for`` has passed it, and shown once every position of ``shows`` has.

Engine, writer and flush ask ``Acknowledgement`` and know no mode. So a row may name a position of
something else, such as the replicas of the store: it takes part with the four methods of ``LogPosition``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from storage.config import FlushMode, StoreConfig

APPENDED: Final = "appended"  # in the mapped file, or with the pool in its shared memory
COMMITTED: Final = "committed"  # in the page cache of the file
FLUSHED: Final = "flushed"  # on the device

OffsetListener = Callable[[int], None]


class AckPolicy(NamedTuple):
    """A row: names of positions."""

    waits_for: tuple[str, ...]
    shows: tuple[str, ...]

    def names(self, position: str) -> bool:
        """Return whether the position has to rise for anything to be acknowledged or shown."""
        return position in self.waits_for or position in self.shows

    def needs(self, position: str) -> bool:
        """Return whether nothing is acknowledged, and nothing shown, before the position has passed it."""
        return position in self.waits_for and position in self.shows


POLICIES: Final[dict[tuple[FlushMode, bool], AckPolicy]] = {
    # flush mode, pool
    ("sync", False): AckPolicy(waits_for=(FLUSHED,), shows=(FLUSHED,)),
    ("sync", True): AckPolicy(waits_for=(FLUSHED,), shows=(FLUSHED,)),
    ("async", False): AckPolicy(waits_for=(APPENDED,), shows=(COMMITTED,)),
    ("async", True): AckPolicy(waits_for=(APPENDED,), shows=(COMMITTED,)),
}


def policy_of(config: StoreConfig) -> AckPolicy:
    """Return the row of a configuration."""
    return POLICIES[config.flush_mode, config.transient_pool]


class LogPosition(Protocol):
    """How far something has come in the log. Methods are safe to call from any thread."""

    @property
    def offset(self) -> int:
        """End of what it has passed."""
        ...

    def request(self, offset: int) -> None:
        """Ask for it to reach ``offset`` soon; returns at once. The page cache has the log so far."""
        ...

    def wait(self, offset: int, timeout_s: float | None = None) -> bool:
        """Wait until it has reached ``offset``; False when time is up. Raises StoreFailed."""
        ...

    def add_listener(self, listener: OffsetListener) -> None:
        """Call ``listener(offset)`` each time it has risen."""
        ...


class AppendedLog(Protocol):
    """What is needed of a log that is appended to."""

    appended_offset: int


class AppendPosition:
    """A position that rises with the append itself, so that nobody ever waits for it."""

    def __init__(self, log: AppendedLog) -> None:
        self._log = log

    @property
    def offset(self) -> int:
        """End of what was appended."""
        return self._log.appended_offset

    def request(self, offset: int) -> None:
        """Do nothing."""

    def wait(self, offset: int, timeout_s: float | None = None) -> bool:
        """Return whether it was appended."""
        del timeout_s
        return self.offset >= offset

    def add_listener(self, listener: OffsetListener) -> None:
        """Do nothing: the append has returned before anybody could wait."""


class Acknowledgement:
    """Applies a row to the positions of one log. ``show(offset)`` lets followers read up to there.

    Whoever brings the log to the page cache does two things up to its new end, without a call of this
    class as that may be every append: ``show`` it if ``shows_commits``, and make each of ``requests``.
    """

    def __init__(
        self,
        policy: AckPolicy,
        positions: Mapping[str, LogPosition],
        *,
        show: Callable[[int], None],
    ) -> None:
        """Positions that the row names must be given; KeyError otherwise."""
        self.policy = policy
        self._awaited = [positions[name] for name in policy.waits_for]
        self._only = self._awaited[0] if len(self._awaited) == 1 else None
        self._shown = [positions[name] for name in policy.shows]
        self._show = show
        self._rising = threading.Lock()
        self._shown_offset = -1
        named = dict.fromkeys((*policy.waits_for, *policy.shows))
        beyond = [positions[name] for name in named if name not in (APPENDED, COMMITTED)]
        self.requests = tuple(position.request for position in beyond)
        self.shows_commits = all(name in (APPENDED, COMMITTED) for name in policy.shows)
        if not self.shows_commits and len(self._shown) == 1:
            self._shown[0].add_listener(show)
        elif not self.shows_commits:
            for position in self._shown:
                position.add_listener(self._risen)

    @property
    def acknowledged_offset(self) -> int:
        """End of what may be acknowledged."""
        if self._only is not None:
            return self._only.offset
        return min(position.offset for position in self._awaited)

    def _risen(self, _: int) -> None:
        with self._rising:  # positions rise in threads of their own, and what is shown never falls
            offset = min(each.offset for each in self._shown)
            if offset > self._shown_offset:
                self._shown_offset = offset
                self._show(offset)

    def wait(self, offset: int, timeout_s: float | None = None) -> bool:
        """Wait until everything before ``offset`` may be acknowledged; False when time is up.

        Raises StoreFailed if it never will be.
        """
        if self._only is not None:
            return self._only.wait(offset, timeout_s)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for position in self._awaited:
            left_s = None if until is None else max(until - time.monotonic(), 0.0)
            if not position.wait(offset, left_s):
                return False
        return True

    def add_listener(self, listener: OffsetListener) -> None:
        """Call ``listener(acknowledged_offset)`` when that may have risen."""
        for position in self._awaited:
            position.add_listener(lambda _: listener(self.acknowledged_offset))
