"""The worker of staged commits: it completes what was stopped, and removes what was not committed in time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.errors import StoreError
from storage.workers import Worker, Workers

if TYPE_CHECKING:
    from storage.staged.staged_commits import StagedCommits

_LOG: Final = logging.getLogger(__name__)
UPKEEP_INTERVAL_S: Final = 5.0


class StagedCommitUpkeep(Worker):
    """Completes what a full disk stopped, and removes what was not committed in time."""

    def __init__(self, staged: StagedCommits, *, workers: Workers | None = None) -> None:
        super().__init__("staged", workers=workers)
        self._parts: tuple[Callable[[], None], ...] = (staged.resume, staged.expire)
        self._last_trouble = ""

    def idle_s(self) -> float:
        """Return the interval."""
        return UPKEEP_INTERVAL_S

    def work(self) -> None:
        """Do both; what fails is logged once, and tried again after the interval."""
        trouble = []
        for part in self._parts:
            try:
                part()
            except (StoreError, OSError) as error:
                trouble.append(str(error))
        text = "; ".join(trouble)
        if text and text != self._last_trouble:
            _LOG.warning("upkeep of staged commits: %s", text)
        self._last_trouble = text
