"""The threads in which the engine's reads run, which a stop does not wait for without end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor


class ReadThreads(ThreadPoolExecutor):
    """For calls that write nothing: one that is left behind at the end of the process costs nobody anything."""

    def __init__(self, count: int) -> None:
        self._begun: list[threading.Thread] = []
        super().__init__(
            count,
            thread_name_prefix="reads",
            initializer=lambda: self._begun.append(threading.current_thread()),
        )

    def end(self, timeout_s: float) -> bool:
        """Begin no more calls, and wait for those under way; False if one still runs when time is up."""
        self.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + timeout_s
        for thread in list(self._begun):
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._begun)
