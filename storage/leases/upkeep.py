"""The background work of leases: syncs of the journal, groups' offsets for a broker, a new journal."""

from __future__ import annotations

import logging
from typing import Final

from storage.clock import Clock, SystemClock
from storage.leases.leases import Leases
from storage.workers import Worker, Workers

_LOG: Final = logging.getLogger(__name__)
FULL_RETRY_S: Final = 1.0
_MS_PER_S: Final = 1e3


class LeaseUpkeep(Worker):
    """A worker; each of its steps does what is due by then.

    A failed sync of the journal ends it. What it cannot write beside that it tries again: the journal has it.
    """

    full_retry_s = FULL_RETRY_S

    def __init__(
        self, leases: Leases, *, workers: Workers | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__("leases", workers=workers)
        self._leases = leases
        self._clock = clock or SystemClock()
        self._saved_at = self._clock.monotonic()
        self._trouble = ""

    def idle_s(self) -> float:
        """Return how long after a step the next one is due."""
        config = self._leases.config
        return (config.sync_interval_ms or config.offsets_interval_ms) / _MS_PER_S

    def work(self) -> None:
        """Sync the journal; now and then save groups' offsets, and write the journal again if it is long."""
        self._leases.sync()
        now_s = self._clock.monotonic()
        if (now_s - self._saved_at) * _MS_PER_S < self._leases.config.offsets_interval_ms:
            return
        self._saved_at = now_s
        try:
            self._leases.save_offsets()
            self._leases.compact()
            self._trouble = ""
        except OSError as error:
            if str(error) != self._trouble:
                _LOG.warning("groups' offsets or a new journal are not written: %s", error)
            self._trouble = str(error)
