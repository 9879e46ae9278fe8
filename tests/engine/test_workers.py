"""The one loop under all background threads: when it steps, rests, sleeps, fails and ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_store import append, record, small_config

from storage.errors import StoreFailed, StoreFull
from storage.store import MessageStore
from storage.testing import SteppedWorkers
from storage.workers import Worker, Workers


class Counter(Worker):
    """Takes one of what is asked for with each step."""

    def __init__(
        self, *, full_retry_s: float | None = None, idle_s: float | None = None,
        workers: Workers | None = None, name: str = "count",
    ) -> None:  # fmt: skip
        super().__init__(name, workers=workers)
        self.full_retry_s = full_retry_s
        self.asked = self.done = self.steps = self.finished = 0
        self.rest_s: float | None = None
        self.error: Exception | None = None
        self.on_step: Callable[[], object] = lambda: None
        self._idle_s = idle_s

    def ask(self, count: int = 1) -> None:
        with self.changed:
            self.asked += count
        self.wake()

    def has_work(self) -> bool:
        return self.asked > self.done

    def idle_s(self) -> float | None:
        return self._idle_s

    def work(self) -> float | None:
        self.steps += 1
        self.on_step()
        if self.error is not None:
            raise self.error
        if self.asked == self.done:
            return None
        self.done += 1
        self.notify()
        return self.rest_s

    def finish(self) -> None:
        self.finished += 1

    def has_done(self, count: int, timeout_s: float = 30) -> bool:
        return self.wait_for(lambda: self.done >= count, timeout_s)


@pytest.fixture
def counter():
    worker = Counter()
    worker.start()
    yield worker
    worker.stop()


def test_work_is_done_when_it_is_asked_for_and_no_step_is_made_without(counter: Counter) -> None:
    for count in range(1, 50):
        counter.ask()
        assert counter.has_done(count)
    counter.wake()  # without work
    time.sleep(0.05)
    assert counter.steps == 49


def test_no_wake_up_is_lost_however_many_threads_ask(counter: Counter) -> None:
    def ask() -> None:
        for _ in range(2_000):
            counter.ask()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.has_done(8_000)
    assert counter.done == 8_000


def test_work_made_while_a_step_runs_gets_a_step_of_its_own(counter: Counter) -> None:
    entered, go_on = threading.Event(), threading.Event()
    counter.on_step = lambda: (entered.set(), go_on.wait(30))
    counter.ask()
    assert entered.wait(30)
    counter.ask()
    go_on.set()
    assert counter.has_done(2)


def test_without_work_a_step_is_made_when_the_idle_time_is_over() -> None:
    worker = Counter(idle_s=0.01)
    stepped = threading.Event()
    worker.on_step = stepped.set
    worker.start()
    assert stepped.wait(30)
    worker.stop()


def test_a_rest_is_shortened_by_no_wake_up_but_by_the_end() -> None:
    worker = Counter()
    worker.rest_s = 3_600
    worker.start()
    worker.ask(2)
    assert worker.has_done(1)
    for _ in range(5):
        worker.ask()
    assert not worker.has_done(2, 0.05)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 30
    assert worker.done == 1


def test_the_first_failure_is_the_last_and_everybody_gets_it() -> None:
    worker = Counter()
    failures: list[StoreFailed] = []
    worker.add_failure_listener(failures.append)
    worker.error = OSError(5, "injected")
    worker.start()
    outcomes: list[bool] = []
    waiting = threading.Thread(target=lambda: outcomes.append(worker.has_done(1)))
    waiting.start()
    worker.ask()
    waiting.join(30)
    assert outcomes == [False]
    assert [str(failure) for failure in failures] == [worker.problem]
    assert "count failed" in worker.problem and "injected" in worker.problem
    worker.error = None
    with pytest.raises(StoreFailed, match="injected"):
        worker.step()
    worker.stop()
    assert (worker.steps, worker.finished, len(failures)) == (1, 0, 1)


def test_a_full_disk_is_tried_again_after_a_rest_where_that_helps() -> None:
    worker = Counter(full_retry_s=0.001)
    worker.error = StoreFull("no room")
    worker.start()
    worker.ask()
    assert not worker.has_done(1, 0.05)
    assert worker.problem == "no room" and worker.failure is None
    worker.error = None
    assert worker.has_done(1)
    worker.stop()
    assert worker.problem == ""


def test_the_end_waits_for_the_step_under_way_and_does_the_last_of_the_work_once() -> None:
    worker = Counter()
    entered, go_on = threading.Event(), threading.Event()
    worker.on_step = lambda: (entered.set(), go_on.wait(30))
    worker.start()
    worker.ask()
    assert entered.wait(30)
    ending = threading.Thread(target=worker.stop)
    ending.start()
    ending.join(0.05)
    assert ending.is_alive() and not worker.finished
    go_on.set()
    ending.join(30)
    worker.stop()
    assert (worker.done, worker.finished) == (1, 1)
    assert not worker.wait_for(lambda: False, 30), "nobody waits for a worker that has ended"


def test_a_whole_store_works_without_a_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with MessageStore.open(
        tmp_path / "store", small_config(flush_mode="sync"), workers=SteppedWorkers()
    ) as store:
        store.create_topic("t", 1)
        end = append(store.writer, record(keys="k")).end_commit_offset
        assert store.writer.wait_acknowledged(end) and store.writer.wait_dispatched(end, 0)
        store._put_offset = end
        assert store.query_by_key("t", "k").slices
        assert threading.active_count() == before
