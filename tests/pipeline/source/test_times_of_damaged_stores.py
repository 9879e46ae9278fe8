"""The first offset at or after a time: one answer for every reader, of whole stores and of damaged ones.

What is lost or damaged has no time. The answer is the offset after the newest readable record that is
older, so that a read which starts there leaves out no intact message and comes upon the damage itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_store import small_config
from hand_clock import HandClock

from pipeline.source.options import Selection
from pipeline.source.stream.file_view import FileView
from storage import Message, MessageStore
from storage.reader import StoreReader
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

BEGIN_MS = 1_700_000_000_000
STEP_MS = 10
MESSAGES = 600
QUEUES = [("t", 0), ("t", 1), ("u", 0)]
Times = dict[
    tuple[str, int], list[tuple[int, int]]
]  # commit offset and store time, by queue offset


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Times]:
    """A store of ten log files; each message has a time of its own, and each queue every third."""
    path, clock = tmp_path_factory.mktemp("times") / "whole", HandClock(BEGIN_MS)
    times: Times = {queue: [] for queue in QUEUES}
    with MessageStore.open(path, small_config(flush_mode="sync"), clock=clock) as store:
        store.create_topic("t", 2)
        store.create_topic("u", 1)
        for number in range(MESSAGES):
            queue = QUEUES[number % 3]
            put = store.put(Message(topic=queue[0], queue_id=queue[1], body=b"x" * 900))
            times[queue].append((put.commit_offset, clock.ms))
            clock.pass_ms(STEP_MS)
    return path, times


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def lose(*numbers: int) -> Callable[[Path, Times], set[int]]:
    """Remove log files; the commit offsets of their records are returned."""

    def damage(store: Path, times: Times) -> set[int]:
        lost: set[int] = set()
        for number in numbers:
            file = log_files(store)[number]
            begin, end = int(file.name), int(file.name) + file.stat().st_size
            lost |= {at for queue in times.values() for at, _ in queue if begin <= at < end}
            file.unlink()
        return lost

    return damage


def zero(first: int, last: int) -> Callable[[Path, Times], set[int]]:
    """Overwrite the records of messages ``[first, last)`` with zeros, as a hole in a file reads."""

    def damage(store: Path, times: Times) -> set[int]:
        every = sorted(at for queue in times.values() for at, _ in queue)
        for begin, end in zip(every[first:last], every[first + 1 : last + 1], strict=True):
            file = [each for each in log_files(store) if int(each.name) <= begin][-1]
            with file.open("r+b") as log:
                log.seek(begin - int(file.name))
                log.write(bytes(min(end, int(file.name) + file.stat().st_size) - begin))
        return set(every[first:last])

    return damage


DAMAGES = {
    "nothing": lambda _store, _times: set(),
    "first file lost": lose(0),
    "three middle files lost": lose(6, 5, 4),
    "zeros in the middle": zero(280, 330),
}


@pytest.fixture(params=DAMAGES)
def damaged(
    request: pytest.FixtureRequest, whole: tuple[Path, Times], tmp_path: Path
) -> tuple[Path, Times, set[int]]:
    path, times = whole
    shutil.copytree(path, tmp_path / "s")
    return tmp_path / "s", times, DAMAGES[request.param](tmp_path / "s", times)


def asked_times() -> Iterator[int]:
    yield 0
    for number in range(0, MESSAGES, 31):
        yield from (BEGIN_MS + number * STEP_MS + delta for delta in (-1, 0, 1))
    yield 1 << 50


def expected(queue: list[tuple[int, int]], lost: set[int], oldest: int, time_ms: int) -> int:
    """The offset after the newest readable record that is older than the time."""
    older = [at for at, (place, time) in enumerate(queue) if place not in lost and time < time_ms]
    return max([oldest, *(at + 1 for at in older)])


def test_reader_plan_and_stream_give_the_one_answer(
    damaged: tuple[Path, Times, set[int]],
) -> None:
    store, times, lost = damaged
    plan = StorePlan(StoreView.open(store))
    view = FileView(str(store), Selection(topics=("t", "u")))
    view.look()
    with StoreReader.open(store) as reader:
        for key, records in times.items():
            queue, oldest = plan.queues[key], reader.min_offset(*key)
            assert (queue.begin, queue.end) == (oldest, reader.max_offset(*key))
            for time_ms in asked_times():
                wanted = expected(records, lost, oldest, time_ms)
                assert reader.offset_by_time(*key, timestamp_ms=time_ms) == wanted
                answer = wanted if wanted < queue.end else None
                assert plan.offset_at_time(queue, time_ms) == answer
                assert view.offset_at_time(key, time_ms) == answer
    view.close()
