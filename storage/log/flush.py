"""Workers that move a log's positions: to the page cache (commit) and to the device (flush).

One flush serves everybody who waits: requests that arrive while a sync runs are all covered by the
next one. The first sync that fails is the last: after it the kernel may call lost pages clean, so a
sync that then succeeds proves nothing. Everybody who waits or asks gets that failure, and
nothing is acknowledged again until the store is reopened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.counts import Histogram
from storage.workers import Worker

if TYPE_CHECKING:
    from storage.log.commit_log import CommitLog
    from storage.workers import Workers

OffsetListener = Callable[[int], None]
FULL_RETRY_MAX_S: Final = 0.1


class PositionWorker(Worker):
    """A worker that raises one position by steps: on request, and each ``interval_ms``.

    Listeners run in the stepping thread, once a step that raised the position, in order of
    registration, and must neither block nor raise.
    """

    def __init__(
        self,
        name: str,
        *,
        interval_ms: int,
        on_request: bool,
        workers: Workers | None,
    ) -> None:
        super().__init__(name, workers=workers)
        self._interval_s = interval_ms / 1000
        self._on_request = on_request
        self._requesting = threading.Lock()
        self.offset = 0  # where the position is
        self._requested = 0
        self._hurried = False
        self._listeners: list[OffsetListener] = []

    def move(self) -> int:
        """Raise the position; return where it is."""
        raise NotImplementedError

    def start_at(self, offset: int) -> None:
        """Start; ``offset`` is where the position is now."""
        self.offset = self._requested = offset
        self.start()

    def add_listener(self, listener: OffsetListener) -> None:
        """Call ``listener(offset)`` after every step that raised the position."""
        self._listeners.append(listener)

    def request(self, offset: int) -> None:
        """Ask for the position to reach ``offset`` soon, unless it goes by time alone; returns at once."""
        if offset <= self._requested:
            return
        with self._requesting:
            if offset > self._requested:
                self._requested = offset
        if self._on_request:
            self.wake()

    def hurry(self) -> None:
        """Step now, whatever the mode; returns at once."""
        self._hurried = True
        self.wake()

    def wait(self, offset: int, timeout_s: float | None = None) -> bool:
        """Wait until the position has reached ``offset``; False when time is up first.

        Raises StoreFailed once a step has failed, unless the offset had been reached before.
        """
        self.request(offset)
        if self.wait_for(lambda: self.offset >= offset, timeout_s):
            return True
        self.check()
        return False

    def has_work(self) -> bool:
        """Return whether somebody asked for more."""
        return self._hurried or (self._on_request and self._requested > self.offset)

    def idle_s(self) -> float:
        """Return the interval."""
        return self._interval_s

    def work(self) -> None:
        """Raise the position; notify those who wait, then listeners."""
        self._hurried = False
        offset = self.move()
        if offset > self.offset:
            self.offset = offset
            self.notify()
            for listener in self._listeners:
                listener(offset)

    def finish(self) -> None:
        """Raise it for the last time."""
        self.work()

    def describe(self, error: BaseException) -> str:
        """Return what a failed step means."""
        return f"{self.name} failed, so nothing more is acknowledged: {error}"


class FlushWorker(PositionWorker):
    """Makes a log durable: at every request, or each interval."""

    def __init__(
        self,
        log: CommitLog,
        *,
        on_request: bool,
        interval_ms: int,
        workers: Workers | None = None,
    ) -> None:
        super().__init__("flush", interval_ms=interval_ms, on_request=on_request, workers=workers)
        self._log = log
        self.seconds = Histogram()  # of flushes that made something durable

    def move(self) -> int:
        """Make durable what is committed."""
        began = time.perf_counter()
        offset = self._log.flush()
        if offset > self.offset:
            self.seconds.add(time.perf_counter() - began)
        return offset


class CommitWorker(PositionWorker):
    """Moves a log's bytes from the transient pool to the page cache, on request and each interval."""

    def __init__(self, log: CommitLog, *, interval_ms: int, workers: Workers | None = None) -> None:
        super().__init__("commit", interval_ms=interval_ms, on_request=True, workers=workers)
        self._log = log
        self.full_retry_s = min(interval_ms / 1000, FULL_RETRY_MAX_S)

    def move(self) -> int:
        """Bring what is appended to the page cache."""
        return self._log.commit()
