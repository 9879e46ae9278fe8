"""Group commit, and what happens at the first failure."""

from __future__ import annotations

import errno
import threading

import pytest

from storage.errors import StoreFailed, StoreFull
from storage.log.flush import FlushWorker


class Log:
    """A log whose syncs can be held up and made to fail."""

    def __init__(self) -> None:
        self.committed = 0
        self.syncs: list[int] = []
        self.error: OSError | StoreFull | None = None
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.gated = False

    def flush(self) -> int:
        offset = self.committed
        if self.gated:
            self.entered.release()
            assert self.gate.acquire(timeout=30)
        self.syncs.append(offset)
        if self.error is not None:
            raise self.error
        return offset

    commit = flush


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def worker(log):
    worker = FlushWorker(log, on_request=True, interval_ms=60_000)
    yield worker
    log.gated = False
    log.gate.release(1000)
    if worker.failure is None:
        worker.stop()


def test_one_sync_serves_everybody_who_came_while_another_ran(log, worker):
    log.gated = True
    worker.start_at(0)
    log.committed = 1
    worker.request(1)
    assert log.entered.acquire(timeout=30)
    results = []
    waiting = threading.Barrier(51)

    def wait(offset):
        waiting.wait(30)
        results.append(worker.wait(offset, 30))

    threads = [threading.Thread(target=wait, args=(offset,)) for offset in range(2, 52)]
    for thread in threads:
        thread.start()
    waiting.wait(30)
    log.committed = 51
    worker.request(51)
    log.gate.release(2)
    for thread in threads:
        thread.join(30)
    assert results == [True] * 50
    assert log.syncs == [1, 51]
    assert worker.offset == 51


def test_the_first_failed_sync_is_the_last(log, worker):
    """A sync that succeeds after one that failed proves nothing: the kernel dropped the pages."""
    heard, failures = [], []
    worker.add_listener(heard.append)
    worker.add_failure_listener(failures.append)
    worker.start_at(0)
    log.committed = 10
    assert worker.wait(10, 30)
    log.error = OSError(errno.EIO, "injected")
    log.committed = 20
    with pytest.raises(StoreFailed, match="injected"):
        worker.wait(20, 30)
    log.error = None
    log.committed = 30
    with pytest.raises(StoreFailed):
        worker.wait(30, 30)
    with pytest.raises(StoreFailed):
        worker.step()
    worker.stop()
    assert log.syncs == [10, 20]
    assert heard == [10]
    assert worker.offset == 10
    assert [str(failure) for failure in failures] == [str(worker.failure)]
    assert worker.wait(10, 0), "what was durable before stays acknowledged"


def test_a_listener_that_raises_leaves_nobody_waiting_for_ever(log):
    worker = FlushWorker(log, on_request=True, interval_ms=60_000)

    def broken(offset):
        raise RuntimeError("injected")

    worker.add_listener(broken)
    worker.start_at(0)
    log.committed = 1
    worker.wait(1, 30)
    log.committed = 2
    with pytest.raises(StoreFailed):
        worker.wait(2, 30)
