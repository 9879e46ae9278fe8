"""What an acknowledgement waits for, and what followers are shown: one row of a table for each mode.

A row names positions of the log, each of which only grows: a record is acknowledged once the position
``waits_for`` has passed it, and shown once the position ``shows`` has.

Engine, writer and flush ask ``Acknowledgement`` and know no mode.
"""

from __future__ import annotations

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

    waits_for: str
    shows: str


POLICIES: Final[dict[tuple[FlushMode, bool], AckPolicy]] = {
    # flush mode, pool
    ("sync", False): AckPolicy(waits_for=FLUSHED, shows=FLUSHED),
    ("sync", True): AckPolicy(waits_for=FLUSHED, shows=FLUSHED),
    ("async", False): AckPolicy(waits_for=APPENDED, shows=COMMITTED),
    ("async", True): AckPolicy(waits_for=APPENDED, shows=COMMITTED),
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
        self._awaited = positions[policy.waits_for]
        beyond = [name for name in dict.fromkeys(policy) if name not in (APPENDED, COMMITTED)]
        self.requests = tuple(positions[name].request for name in beyond)
        self.shows_commits = policy.shows in (APPENDED, COMMITTED)
        if not self.shows_commits:
            positions[policy.shows].add_listener(show)

    @property
    def acknowledged_offset(self) -> int:
        """End of what may be acknowledged."""
        return self._awaited.offset

    def wait(self, offset: int, timeout_s: float | None = None) -> bool:
        """Wait until everything before ``offset`` may be acknowledged; False when time is up.

        Raises StoreFailed if it never will be.
        """
        return self._awaited.wait(offset, timeout_s)

    def add_listener(self, listener: OffsetListener) -> None:
        """Call ``listener(acknowledged_offset)`` when that may have risen."""
        self._awaited.add_listener(lambda _: listener(self.acknowledged_offset))
