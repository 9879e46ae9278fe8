"""Keeping what is known of producers' requests: loaded at a start, saved now and then and at the stop.

1. What is saved is noted under the append lock, with the end of the log at that time: some seconds
   after a change, where the log has grown so much that a start would read long, and where the wall
   clock was set, by which a start tells how long ago all of it was.
2. It is written once the log is synced that far, so it never has a request that a power cut takes.
3. A start reads what the log has got since, and saves it at once where the next append would change
   what it reads: of a request whose last records a stop has cut off.
4. What cannot be written is written later, and until then the store says so: a start reads the log instead.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.errors import StoreBusy, StoreError
from storage.producers.loading import STATE, load_windows
from storage.workers import Worker

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.workers import Workers

SAVE_INTERVAL_S: Final = 5.0
LOOK_INTERVAL_S: Final = 1.0
SAVE_BYTES: Final = 128 << 20  # of the log, after which it is saved at once
STOP_BYTES: Final = 4 << 20  # of the log, after which a stop saves though nothing has changed
STOP_WAIT_S: Final = 30.0
RETRY_S: Final = 5.0
_LOG: Final = logging.getLogger(__name__)


class ProducerWorker(Worker):
    """Loads and saves the windows of one store's producers."""

    full_retry_s = RETRY_S

    def __init__(
        self, engine: Engine, appender: Appender, clock: Clock, *, workers: Workers | None = None
    ) -> None:
        super().__init__("producers", workers=workers)
        self._engine = engine
        self._appender = appender
        self._clock = clock
        self._noted: tuple[int, bytes] | None = None
        self._saved_at = clock.monotonic()
        self._saved_offset = 0  # what a start reads from, at the earliest

    def start(self) -> None:
        """Load what is known, and begin to save. Raises StoreFull, OSError."""
        log = self._engine.log
        must_save, self._saved_offset = load_windows(
            self._appender.windows, self._engine.states.get(STATE), log.files,
            min_offset=log.min_offset, end_offset=log.appended_offset, now_ms=self._clock.now_ms(),
        )  # fmt: skip
        if must_save:
            self._note()
            self._save()
        super().start()

    def has_work(self) -> bool:
        """Return whether it is time to note, or to write what was noted."""
        if self._noted is not None:
            return self._engine.log.flushed_offset >= self._noted[0]
        since_s = self._clock.monotonic() - self._saved_at
        windows = self._appender.windows
        is_due = windows.is_changed and since_s >= SAVE_INTERVAL_S
        return is_due or self._grown_bytes >= SAVE_BYTES or windows.is_clock_set

    @property
    def _grown_bytes(self) -> int:
        return self._engine.log.appended_offset - self._saved_offset

    def idle_s(self) -> float:
        """Return how long to sleep: nobody wakes it."""
        return LOOK_INTERVAL_S

    def work(self) -> None:
        """Note, or write what was noted."""
        if not self.has_work():
            return
        if self._noted is None:
            self._note()
            return
        try:
            self._save()
        except OSError as error:
            problem = (
                f"requests of producers are not saved, and a start has to read the log: {error}"
            )
            if not self._problem:
                _LOG.warning("%s", problem)
            raise StoreBusy(problem, retry_delay_ms=round(RETRY_S * 1_000)) from error

    def _note(self) -> None:
        """Make the bytes to be written; of what has not changed since they are at hand."""
        with self._appender.lock:
            offset = self._engine.log.appended_offset
            encode = self._appender.windows.copied(offset)
        self._noted = offset, encode()

    def _save(self) -> None:
        """Write what was noted; durable on return. Raises StoreFull, OSError."""
        assert self._noted is not None
        offset, data = self._noted
        self._engine.states.put({STATE: data})
        self._saved_offset = offset
        self._noted, self._saved_at = None, self._clock.monotonic()

    def finish(self) -> None:
        """Write all of it, once the log is synced."""
        windows = self._appender.windows
        is_changed = self._noted is not None or windows.is_changed or windows.is_clock_set
        if not is_changed and self._grown_bytes < STOP_BYTES:
            return
        self._note()
        engine = self._engine
        with suppress(StoreError):  # then the start reads more of the log
            engine.flusher.hurry()
            if engine.flusher.wait(engine.log.appended_offset, STOP_WAIT_S):
                self._save()

    def close(self) -> None:
        """Stop, and write all of it; what cannot be written a start finds in the log. Safe to call twice."""
        with suppress(StoreError):
            self.stop()
