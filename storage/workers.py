"""Background work as an argument: each part of a store goes by steps, and ``Workers`` says who makes them.

``Threads`` gives each worker a thread; that is what a store runs on. ``storage.testing`` has workers that
a test steps by hand, so that one seed gives the same run each time.

The loop of a thread is here and nowhere else:

1. Sleep until there is work or the idle time is over, looking again at each ring; then make a step.
2. A step that returns seconds asks for the next one after a rest that no wake-up shortens.
3. The first step that fails is the last. Its error is kept, and reported to listeners and waiters.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from storage.errors import StoreBusy, StoreError, StoreFailed, StoreFull

_LOG: Final = logging.getLogger(__name__)

FailureListener = Callable[[StoreFailed], None]
Result = TypeVar("Result")


class FailureLatch:
    """The first ``failure`` of something that does not go on after one. Safe to use from any thread."""

    def __init__(self) -> None:
        self.failure: StoreFailed | None = None
        self._guard = threading.Lock()
        self._listeners: list[FailureListener] = []

    def add_listener(self, listener: FailureListener) -> None:
        """Call ``listener(failure)`` once, in the thread that fails."""
        self._listeners.append(listener)

    def fail(self, failure: StoreFailed) -> StoreFailed:
        """Keep the failure unless there is one; return the one that is kept."""
        with self._guard:
            if self.failure is not None:
                return self.failure
            self.failure = failure
        for listener in self._listeners:
            listener(failure)
        return failure

    def check(self) -> None:
        """Raise StoreFailed after a failure."""
        if self.failure is not None:
            # A new exception each time: raising the kept one would tie every caller's frames to it.
            raise StoreFailed(str(self.failure)) from self.failure


class Bell(Protocol):
    """What a worker's thread sleeps on."""

    def ring(self) -> None:
        """End the wait under way, or the next one; rung twice, it may end two."""
        ...

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep until somebody rings; False when time is up first."""
        ...


class ThreadBell:
    """A bell within one process."""

    def __init__(self) -> None:
        # Unlike an Event it is taken from and put to without a line of Python.
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """End the wait under way, or the next one."""
        self._rings.put(None)

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep until somebody rings; False when time is up first."""
        try:
            self._rings.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True


class Workers(Protocol):
    """Who makes the steps of workers."""

    def start(self, worker: Worker) -> None:
        """Have the worker's steps made from here on."""
        ...

    def join(self, worker: Worker) -> None:
        """Return when no step is made any more; ``worker.end`` was called before."""
        ...

    def wait(self, worker: Worker, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Return ``done()``, as soon as it is true, the worker has ended, or time is up."""
        ...


class Threads:
    """Gives each worker a thread."""

    def __init__(self) -> None:
        self._threads: dict[Worker, threading.Thread] = {}

    def start(self, worker: Worker) -> None:
        """Start the worker's thread."""
        thread = threading.Thread(target=worker.run, name=f"penstock-{worker.name}", daemon=True)
        self._threads[worker] = thread
        thread.start()

    def join(self, worker: Worker) -> None:
        """Wait for the end of its thread, if it has one that was started."""
        thread = self._threads.pop(worker, None)
        if thread is not None and thread.ident is not None:
            thread.join()

    def wait(self, worker: Worker, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for a change that makes ``done()`` true."""
        if done():
            return True
        with worker.changed:
            worker.changed.wait_for(lambda: done() or worker.has_ended, timeout_s)
        return done()


class Worker:
    """One background part: subclasses say what a step is, and when there is something to do.

    ``changed`` is the condition under which what ``wait_for`` looks at changes.
    """

    full_retry_s: float | None = None
    """How long to rest after StoreFull before the next step, after StoreBusy at most; None makes them failures."""

    def __init__(
        self, name: str, *, workers: Workers | None = None, bell: Bell | None = None
    ) -> None:
        self.name = name
        self.changed = threading.Condition()
        self.is_running = False  # between start and the end of stop
        self.has_ended = False  # no further step will be made
        self._latch = FailureLatch()
        self._problem = ""
        self._workers = workers or Threads()
        self._bell = bell or ThreadBell()
        self._end_bell = ThreadBell()
        self._stepping = threading.Lock()
        self._asleep = False
        self._ending = False

    # ---- what a kind of worker says

    def work(self) -> float | None:
        """Make one step. Returns after how many seconds to make the next, None: when there is work.

        StoreFull and StoreBusy mean that nothing was lost and the next step may have room, where
        ``full_retry_s`` is set. Any other error ends the worker.
        """
        raise NotImplementedError

    def has_work(self) -> bool:
        """Return whether a step is due; whoever makes it True calls ``wake`` next."""
        return False

    def idle_s(self) -> float | None:
        """Return after how many seconds without work to make a step nevertheless; None: never."""
        return None

    def finish(self) -> None:
        """Do the last of the work, in the thread that stops the worker."""

    def describe(self, error: BaseException) -> str:
        """Return what a failed step means."""
        return f"{self.name} failed: {error}"

    # ---- what is done with it

    def start(self) -> None:
        """Have its steps made from here on."""
        self.is_running = True
        self._workers.start(self)

    def wake(self) -> None:
        """Look whether there is work; cheap while the worker is busy."""
        if self._asleep:
            self._asleep = False  # one ring is enough for everybody
            self._bell.ring()

    def step(self) -> float | None:
        """Make one step in this thread; returns what ``work`` does.

        Raises StoreFull, StoreBusy, and StoreFailed once a step has failed.
        """
        return self.guarded(self.work)

    def end(self) -> None:
        """Make no step after the one under way; returns at once."""
        self._ending = True
        self._bell.ring()
        self._end_bell.ring()

    def stop(self) -> None:
        """End it, wait for the step under way and do the last of the work, once.

        Raises StoreFailed, StoreFull, StoreBusy if that fails now; an earlier failure is not raised again.
        """
        self.end()
        self._workers.join(self)
        try:
            if self.is_running and self.failure is None:
                self.guarded(self.finish)
        finally:
            self.is_running = False
            self.has_ended = True
            self.notify()

    def wait_for(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until ``done()``, which follows the worker's steps; False if it did not come to it."""
        return self._workers.wait(self, done, timeout_s)

    def notify(self) -> None:
        """Have those who wait look again."""
        with self.changed:
            self.changed.notify_all()

    @property
    def failure(self) -> StoreFailed | None:
        """Why it makes no more steps, or None."""
        return self._latch.failure

    @property
    def problem(self) -> str:
        """Why it has failed or, for now, has no room; empty while all is well."""
        return str(self._latch.failure or self._problem)

    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call ``listener(failure)`` once, when a step fails for good."""
        self._latch.add_listener(listener)

    def check(self) -> None:
        """Raise StoreFailed once a step has failed."""
        self._latch.check()

    def try_guarded(self, work: Callable[[], object]) -> bool:
        """Do ``work`` as a step in this thread if the worker sleeps; False if that is left to the worker.

        It is where there was no room, too. A failure for good is the worker's, and is logged.
        """
        if not self._asleep or self.has_ended or not self._stepping.acquire(blocking=False):
            return False
        try:
            self._make(work)
        except (StoreFull, StoreBusy):
            return False
        except StoreFailed as failed:
            self._report(failed)
        finally:
            self._stepping.release()
        return True

    def guarded(self, work: Callable[[], Result]) -> Result:
        """Do ``work`` as a step: none beside it, none after a failure, and its failure is the worker's."""
        with self._stepping:
            return self._make(work)

    def _make(self, work: Callable[[], Result]) -> Result:
        self._latch.check()
        try:
            result = work()
        except Exception as error:
            if isinstance(error, StoreFull | StoreBusy) and self.full_retry_s is not None:
                self._problem = str(error)
                raise
            raise StoreFailed(str(self._fail(error))) from error
        self._problem = ""
        return result

    def _report(self, failed: StoreFailed) -> None:
        """Log a failure; where it is not the device's, also where in the code it was."""
        cause = failed.__cause__
        is_of_the_device = isinstance(cause, OSError | StoreError)
        _LOG.error("%s", failed, exc_info=None if is_of_the_device else cause)

    def _fail(self, error: BaseException) -> StoreFailed:
        failure = error if isinstance(error, StoreFailed) else StoreFailed(self.describe(error))
        kept = self._latch.fail(failure)
        self.has_ended = True
        self.notify()
        return kept

    def run(self) -> None:
        """Make steps until ``end``, or until one fails: what a thread of the worker runs."""
        rest_s: float | None = None
        while True:
            try:
                if rest_s is None:
                    self._sleep()
                elif rest_s > 0:
                    self._end_bell.wait(rest_s)
                if self._ending:
                    return
                rest_s = self.step()
            except StoreFull:
                rest_s = self.full_retry_s
            except StoreBusy as busy:  # raised only where there is a full_retry_s
                rest_s = min(busy.retry_delay_ms / 1000, self.full_retry_s or 0.0)
            except StoreFailed as failed:
                self._report(failed)
                return
            except BaseException as error:
                self._fail(error)  # whoever waits must not wait for ever
                raise

    def _sleep(self) -> None:
        idle_s = self.idle_s()
        until = None if idle_s is None else time.monotonic() + idle_s
        while True:
            self._asleep = True  # before the look: who makes work after it sees this, and rings
            if self.has_work() or self._ending:
                break
            left_s = None if until is None else until - time.monotonic()
            if (left_s is not None and left_s <= 0) or not self._bell.wait(left_s):
                break
        self._asleep = False


class FunctionWorker(Worker):
    """A worker whose step is a function of somebody else's; ``has_work`` and ``idle_s`` likewise."""

    def __init__(
        self,
        name: str,
        work: Callable[[], float | None],
        *,
        has_work: Callable[[], bool],
        idle_s: Callable[[], float] | None = None,
        full_retry_s: float | None = None,
        workers: Workers | None = None,
        bell: Bell | None = None,
    ) -> None:
        super().__init__(name, workers=workers, bell=bell)
        self.full_retry_s = full_retry_s
        self._functions = work, has_work, idle_s

    def work(self) -> float | None:
        """Make one step."""
        return self._functions[0]()

    def has_work(self) -> bool:
        """Return whether a step is due."""
        return self._functions[1]()

    def idle_s(self) -> float | None:
        """Return how long to sleep at most."""
        idle_s = self._functions[2]
        return None if idle_s is None else idle_s()
