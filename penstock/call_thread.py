"""The thread that makes a client's calls where the caller's own may be interrupted."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from penstock.background import Background

_log = logging.getLogger(__name__)


class CallThread:
    """A thread that makes calls for others.

    An interrupt (Ctrl-C) raises in the main thread wherever it is: within grpc it may leave a lock held, and
    all calls of the channel wait for ever. No interrupt reaches this thread.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._background = Background("penstock-calls")

    def __del__(self) -> None:
        # Not at a close: a job that is given after it finds the channel closed, and says so to its caller.
        self._jobs.put(None)

    def do(self, job: Callable[[], object]) -> None:
        """Have it done soon, after what was given before; nothing is done at the interpreter's end."""
        if sys.is_finalizing():  # no thread begins any more, and the process ends its calls
            return
        self._jobs.put(job)
        self._background.start(partial(_do, self._jobs))


async def _do(jobs: SimpleQueue[Callable[[], object] | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            job()
        except Exception:  # noqa: BLE001  the others have to be done
            _log.exception("a call failed")
