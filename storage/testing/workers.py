"""The background parts of a store without threads: each makes a step when a test asks for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.errors import StoreBusy, StoreFailed, StoreFull

if TYPE_CHECKING:
    from storage.workers import Worker


class SteppedWorkers:
    """Makes steps of workers by name; use a new one for each opening of a store.

    Names are ``commit`` (with the pool), ``flush``, ``dispatch``, ``checkpoint``, ``allocate``, ``warm``,
    ``staged``, ``scrub``, ``rebuild``, ``retention``, ``timers``, ``transactions``, ``index``, and of a store
    that a broker had ``revive``. What waits for a worker makes steps of it, and of the others if that is not
    enough, so calls that wait return in the one thread there is.
    """

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._under_way: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The workers that have been started, in that order."""
        return tuple(self._workers)

    def step(self, name: str) -> None:
        """Make one step of a worker, as if its time had come. Raises KeyError for an unknown name.

        A failure is the worker's, as with a thread: it ends, and whoever relies on it is refused. Within
        a step of the worker, which waits for others, nothing is done.
        """
        worker = self._workers[name]
        if name in self._under_way:
            return
        self._under_way.add(name)
        try:
            with suppress(StoreFull, StoreBusy, StoreFailed):
                worker.step()
        finally:
            self._under_way.discard(name)

    def settle(self) -> None:
        """Make steps of all until nothing more comes of it."""
        for _ in self._workers:
            for name in self.names:
                self.step(name)

    # ---- what workers call

    def start(self, worker: Worker) -> None:
        """Take a worker in."""
        self._workers[worker.name] = worker

    def join(self, worker: Worker) -> None:
        """Make no step of it from here on."""
        if self._workers.get(worker.name) is worker:
            del self._workers[worker.name]

    def wait(self, worker: Worker, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Make steps until ``done()``, however long it may take; return whether it came to it."""
        del timeout_s
        if self._workers.get(worker.name) is not worker:
            return done()  # it has not started, or has ended
        if not done():
            self.step(worker.name)
        for _ in self.names:
            if done() or worker.has_ended:
                break
            for name in self.names:
                self.step(name)
        return done()
