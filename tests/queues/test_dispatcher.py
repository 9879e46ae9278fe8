"""The dispatcher alone: damage in its way, work done twice, queues that begin late."""

from contextlib import contextmanager

import numpy as np
import pytest
from engine_store import record, small_config
from real_processes import until

from storage.clock import SystemClock
from storage.errors import StoreFull
from storage.files.filesystem import File, FileSystem
from storage.files.mapped_file_queue import MappedFileQueue
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.queues.consume_queue import as_units
from storage.queues.dispatch import Dispatcher, DispatchWorker
from storage.queues.queue_table import QueueTable
from storage.writer import StoreWriter

QUEUE_FILE_SIZE = 200


@pytest.fixture
def log(tmp_path):
    """Write ten records of two queues; return the files, where each record is, and the end."""
    directory = tmp_path / "store"
    with StoreWriter.open(directory, small_config()) as writer:
        writer.create_topic("t", 2)
        results = [writer.append_batch(record(queue_id=i % 2)) for i in range(10)]
    files = MappedFileQueue(
        FileSystem(), directory / "commitlog", file_size=small_config().commit_log_file_size
    )
    yield files, [each.commit_offset for each in results], results[-1].end_commit_offset
    files.close()


def new_table(tmp_path):
    return QueueTable(FileSystem(), tmp_path / "queues", file_size=QUEUE_FILE_SIZE)


def dispatch_all(files, table, begin, end):
    dispatcher = Dispatcher(files, table, begin, unit_count=0)
    while dispatcher.step(end):
        pass
    return dispatcher.position


def offsets(queue):
    return as_units(queue.read(0, queue.next_offset))["offset"].tolist()


def test_a_full_disk_moves_nothing_and_is_gone_on_from(tmp_path, log, monkeypatch):
    files, places, end = log
    table = new_table(tmp_path)
    dispatcher = Dispatcher(files, table, 0, unit_count=0)
    while dispatcher.step(places[4]):
        pass

    def full(file, data, position):
        raise StoreFull("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(File, "pwrite", full)
        with pytest.raises(StoreFull):
            dispatcher.step(end)
        assert dispatcher.reached == (places[4], 4)
        assert table.get("t", 0).next_offset == 2
    while dispatcher.step(end):
        pass
    assert dispatcher.reached == (end, 10)
    assert offsets(table.get("t", 0)) == places[::2]
    assert offsets(table.get("t", 1)) == places[1::2]


@pytest.mark.parametrize("damaged", [2, 3])
def test_a_damaged_record_keeps_its_queue_offset_as_a_placeholder(tmp_path, log, damaged):
    files, places, end = log
    files.find(0).array[places[damaged] + 4] ^= 1
    table = new_table(tmp_path)
    assert dispatch_all(files, table, 0, end) == end
    queue = table.get("t", damaged % 2)
    assert offsets(queue) == places[damaged % 2 :: 2]
    assert queue.unit(damaged // 2)[1] == places[damaged + 1] - places[damaged]


def test_a_queue_whose_log_begins_late_is_filled_up_as_a_broker_does(tmp_path, log):
    files, places, end = log
    table = new_table(tmp_path)
    dispatch_all(files, table, places[4], end)
    queue = table.get("t", 0)
    assert [queue.unit(i)[:2] for i in range(2)] == [(0, PREFILL_SIZE)] * 2
    assert [queue.unit(i)[0] for i in range(2, 5)] == places[4::2]
    assert queue.find_first(1) == 2


def test_truncating_zeroes_the_tail_and_removes_later_files(tmp_path):
    table = new_table(tmp_path)
    queue = table.get("t", 0)
    units = np.ones(25, np.dtype([("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")]))
    queue.append(units.tobytes())
    queue.truncate(12)
    assert [path.name for path in sorted(queue.directory.iterdir())] == [f"{0:020d}", f"{200:020d}"]
    assert not any(queue.read(12, 8))
    assert queue.unit(11)[1] == 1
    assert queue.next_offset == 12


@contextmanager
def full_from(position):
    """Have a disk without room for units at or after this place of a queue's file."""
    write = File.pwrite

    def pwrite(file, data, at):
        if at >= position:
            raise StoreFull("no space left")
        return write(file, data, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(File, "pwrite", pwrite)
        yield


def test_who_waits_for_dispatch_goes_on_when_it_is_published(log, tmp_path):
    """Another thread that saw the position sooner would pull, and not see what it has just put."""
    files, _, end = log
    dispatcher = Dispatcher(files, new_table(tmp_path), 0, unit_count=0)
    seen = []
    worker = DispatchWorker(
        dispatcher, limit=lambda: end, clock=SystemClock(),
        publish=lambda offset: seen.append((offset, worker.wait(offset, 0))),
    )  # fmt: skip

    worker.step()

    assert seen[-1] == (end, False)
    assert worker.wait(end, 0)


class _Published:
    """Where a dispatch worker is told that consumers see, and how far it may go."""

    def __init__(self) -> None:
        self.limit = self.offset = 0


@pytest.fixture(name="sleeping")
def _sleeping(tmp_path, log):
    """A dispatch worker whose thread sleeps, and what it publishes: nothing may be dispatched yet."""
    files, _, _ = log
    said = _Published()
    worker = DispatchWorker(
        Dispatcher(files, new_table(tmp_path), 0, unit_count=0),
        limit=lambda: said.limit,
        publish=lambda offset: setattr(said, "offset", offset),
        clock=SystemClock(),
    )
    worker.start()
    until(lambda: worker._asleep)
    yield worker, said
    worker.stop()


def test_who_appended_a_little_dispatches_it_without_waking_the_worker(sleeping, log):
    """But what belongs to a queue that was not met before, or is much, is left to the worker."""
    worker, said = sleeping
    _, places, end = log
    said.limit = places[2]
    assert not worker.dispatch_few(1 << 20)
    assert (worker.position, said.offset) == (0, 0)
    worker.wake()
    until(lambda: said.offset == places[2] and worker._asleep)

    said.limit = places[6]
    assert not worker.dispatch_few(places[6] - places[2] - 1)
    assert worker.position == places[2]
    assert worker.dispatch_few(places[6] - places[2])
    assert (worker.position, said.offset) == (places[6], places[6])
    assert worker.wait(places[6], 0)
    assert offsets(worker.dispatcher.queues.get("t", 1)) == places[1:6:2]

    said.limit = end
    with full_from(3 * UNIT_SIZE):
        assert not worker.dispatch_few(1 << 20)
    assert worker.failure is None
    assert worker.dispatch_few(1 << 20)
    assert worker.dispatcher.reached == (end, 10)


def test_a_queue_file_of_wrong_length_gets_the_right_one(tmp_path):
    directory = tmp_path / "queues" / "t" / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(b"\1" * 33)
    (directory / f"{200:020d}").write_bytes(b"\1" * 333)
    queue = new_table(tmp_path).get("t", 0)
    assert [path.stat().st_size for path in sorted(directory.iterdir())] == [200, 200]
    assert queue.read(0, 2) == b"\1" * 33 + b"\0" * 7


@pytest.mark.parametrize("position", [0, 2 * UNIT_SIZE])
def test_a_disk_that_fills_while_a_late_queue_is_filled_up_costs_no_unit(tmp_path, log, position):
    files, places, end = log
    table = new_table(tmp_path)
    dispatcher = Dispatcher(files, table, places[4], unit_count=0)
    with full_from(position), pytest.raises(StoreFull):
        dispatcher.step(end)
    while dispatcher.step(end):
        pass
    assert dispatcher.reached == (end, 10)
    assert dispatcher.reached == (end, table.count_units(end).units)
    for queue_id in (0, 1):
        queue = table.get("t", queue_id)
        assert [queue.unit(i)[:2] for i in range(2)] == [(0, PREFILL_SIZE)] * 2
        assert [queue.unit(i)[0] for i in range(2, 5)] == places[4 + queue_id :: 2]


def test_a_failure_met_by_who_appended_is_the_workers(sleeping, log, monkeypatch):
    """As in its own thread: it ends, and whoever waits is not left waiting."""
    worker, said = sleeping
    _, places, end = log
    said.limit = places[2]
    worker.wake()
    until(lambda: said.offset == places[2] and worker._asleep)

    def fail(*_):
        raise OSError("the device is gone")

    monkeypatch.setattr(File, "pwrite", fail)
    said.limit = end
    assert not worker.dispatch_few(1 << 20)
    assert "device is gone" in str(worker.failure)
    assert not worker.wait(end, 10)
