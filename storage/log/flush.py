"""Threads that move a log's positions: to the page cache (commit) and to the device (flush).

One flush serves everybody who waits: requests that arrive while a sync runs are all covered by the
next one. The first sync that fails is the last: after it the kernel may call lost pages clean, so a
sync that then succeeds proves nothing. The failure is kept, everybody who waits or asks gets it, and
nothing is acknowledged again until the store is opened anew.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from storage.errors import StoreFailed, StoreFull

if TYPE_CHECKING:
    from storage.config import FlushMode

OffsetListener = Callable[[int], None]
FailureListener = Callable[[StoreFailed], None]


class FlushableLog(Protocol):
    """What the flush thread needs of a log."""

    def flush(self) -> int:
        """Make what was committed before the call durable; return the durable end offset.

        No sync when nothing is new. Raises OSError.
        """
        ...


class CommittableLog(Protocol):
    """What the commit thread needs of a log."""

    def commit(self) -> int:
        """Copy what was appended before the call to the page cache; return its end offset.

        Raises OSError, or StoreFull when trying again may help.
        """
        ...


class _PositionService(ABC):
    """A thread that raises one position by steps, on request and by the clock.

    Methods are thread-safe. Listeners run in the stepping thread, once a step, in order of
    registration, and must neither block nor raise.
    """

    def __init__(self, *, name: str, interval_ms: int, on_request: bool) -> None:
        self._name = name
        self._interval_s = interval_ms / 1000
        self._on_request = on_request
        self._changed = threading.Condition()
        self._stepping = threading.Lock()
        self._offset = 0
        self._requested = 0
        self._failure: StoreFailed | None = None
        self._closing = False
        self._hurried = False
        self._thread: threading.Thread | None = None
        self._listeners: list[OffsetListener] = []
        self._failure_listeners: list[FailureListener] = []

    @abstractmethod
    def _step(self) -> int:
        """Raise the position; return where it is."""

    def start(self, offset: int) -> None:
        """Start the thread; ``offset`` is where the position is now."""
        self.set_offset(offset)
        self._thread = threading.Thread(
            target=self._run, name=f"penstock-{self._name}", daemon=True
        )
        self._thread.start()

    def set_offset(self, offset: int) -> None:
        """Say where the position is, before any step; for use without the thread."""
        self._offset = self._requested = offset

    def add_listener(self, listener: OffsetListener) -> None:
        """Call ``listener(offset)`` after every step that raised the position."""
        self._listeners.append(listener)

    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call ``listener(failure)`` once, when a step fails for good."""
        self._failure_listeners.append(listener)

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing is acknowledged any more, or None."""
        return self._failure

    def request(self, offset: int) -> None:
        """Ask for the position to reach ``offset`` soon; returns at once."""
        if offset <= self._requested:
            return
        with self._changed:
            if offset > self._requested:
                self._requested = offset
                if self._on_request:
                    self._changed.notify_all()

    def hurry(self) -> None:
        """Step now, whatever the mode; returns at once."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def wait(self, offset: int, timeout_s: float | None = None) -> bool:
        """Wait until the position has reached ``offset``; False when time is up first.

        Raises StoreFailed once a step has failed, unless the offset had been reached before.
        """
        self.request(offset)
        with self._changed:
            self._changed.wait_for(
                lambda: self._offset >= offset or self._failure is not None, timeout_s
            )
            if self._offset >= offset:
                return True
            if self._failure is not None:
                raise self._failure
            return False

    def run_once(self) -> int:
        """Do one step now, in this thread, and return the position. Raises StoreFailed, StoreFull."""
        with self._stepping:
            if self._failure is not None:
                raise self._failure
            try:
                offset = self._step()
            except OSError as error:
                raise self._fail(error) from error
            if offset <= self._offset:
                return self._offset
            with self._changed:
                self._offset = offset
                self._changed.notify_all()
            for listener in self._listeners:
                listener(offset)
            return offset

    def _fail(self, error: BaseException) -> StoreFailed:
        failure = StoreFailed(f"{self._name} failed, so nothing more is acknowledged: {error}")
        with self._changed:
            self._failure = failure
            self._changed.notify_all()
        for listener in self._failure_listeners:
            listener(failure)
        return failure

    def _run(self) -> None:
        while not self._closing:
            with self._changed:
                self._changed.wait_for(self._has_work, self._interval_s)
                self._hurried = False
            if self._closing:
                break
            try:
                self.run_once()
            except StoreFull:
                # Tried again, but not in a busy loop.
                time.sleep(min(self._interval_s, 0.1))
            except StoreFailed:
                break
            except BaseException as error:
                # A listener broke its contract: whoever waits must not wait for ever.
                self._fail(error)
                raise

    def _has_work(self) -> bool:
        return (
            self._closing or self._hurried or (self._on_request and self._requested > self._offset)
        )

    def close(self) -> None:
        """Stop the thread and do a last step. Raises StoreFailed, StoreFull if that fails."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is None:
            self.run_once()


class FlushService(_PositionService):
    """Makes a log durable: at every request in sync mode, at intervals in async mode."""

    def __init__(self, log: FlushableLog, *, mode: FlushMode, interval_ms: int) -> None:
        super().__init__(name="flush", interval_ms=interval_ms, on_request=mode == "sync")
        self._log = log

    def _step(self) -> int:
        return self._log.flush()

    @property
    def flushed_offset(self) -> int:
        """End of what is durable."""
        return self._offset


class CommitService(_PositionService):
    """Moves a log's bytes from the transient pool to the page cache, on request and by the clock."""

    def __init__(self, log: CommittableLog, *, interval_ms: int) -> None:
        super().__init__(name="commit", interval_ms=interval_ms, on_request=True)
        self._log = log

    def _step(self) -> int:
        return self._log.commit()

    @property
    def committed_offset(self) -> int:
        """End of what is in the page cache."""
        return self._offset
