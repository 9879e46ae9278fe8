"""What staged commits need of an engine's log; what is decided is appended whatever topics allow now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.log.batches import Prepared


class StagedLog:
    """The log of a store; ``refuse`` raises for what cannot be staged."""

    def __init__(
        self, engine: Engine, appender: Appender, refuse: Callable[[Prepared], Prepared]
    ) -> None:
        self._log = engine.log
        self._flusher = engine.flusher
        self._appender = appender
        self._refuse = refuse
        self.files = engine.log.files
        self.fail = engine.fail
        self.check_size = engine.log.check_size
        self.check_queue = appender.check_queue
        self.check_open = appender.check_open

    @property
    def appended_offset(self) -> int:
        """End of what was appended."""
        return self._log.appended_offset

    def prepare(self, records: bytes | memoryview) -> Prepared:
        """Check records as a batch is checked."""
        return self._refuse(self._appender.prepare(records))

    def append(self, prepared: Prepared) -> int:
        """Append a checked batch; return its commit offset."""
        return self._appender.append(prepared, decided=True)[0]

    def wait_flushed(self, end_commit_offset: int, timeout_s: float) -> bool:
        """Hurry the flush, and wait for it; False when time is up."""
        self._flusher.hurry()
        return self._flusher.wait(end_commit_offset, timeout_s)
