"""Files of queues that somebody removes while the writer runs: the next look at their names makes them again."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storage import Message, MessageStore, StoreConfig, StoreReader
from storage.errors import StoreBusy, StoreFull
from storage.format.record import decode_record
from storage.scrub import queue_repairs
from storage.scrub.worker import FAILED_SHARE, NAMES_REST_S, NAMES_SHARE
from storage.testing import SteppedClock, SteppedWorkers
from storage.testing.clock import LOOK_S
from storage.view.log.recovery_cases import Start
from storage.view.queues.units import as_units

UNITS_PER_FILE = 20
CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=UNITS_PER_FILE * 20, index_slot_count=7,
    index_entry_count=500,
)  # fmt: skip
REST_S = 1_000.0  # more than between two looks
PER_QUEUE = 65  # three files and a bit


class Removed:
    """A running store of two queues, a reader that knows them, and what was stored in each."""

    def __init__(self, directory: Path, *, used: bool, config: StoreConfig = CONFIG) -> None:
        self.directory = directory
        self.clock = SteppedClock()
        self.expected: dict[int, list[bytes]] = {0: [], 1: []}
        self.store = self.opened(config)
        self.store.create_topic("t", 2)
        self.put(*[n % 2 for n in range(2 * PER_QUEUE)])
        if not used:  # the writer has not looked at a queue's files since its start
            self.store.close()
            self.store = self.opened(config)
        self.reader = StoreReader.open(directory)
        assert self.served(self.reader) == self.expected

    def opened(self, config: StoreConfig) -> MessageStore:
        self.workers = SteppedWorkers()
        return MessageStore.open(self.directory, config, clock=self.clock, workers=self.workers)

    def put(self, *queue_ids: int) -> None:
        messages = []
        for queue_id in queue_ids:
            body = b"%d of %d" % (len(self.expected[queue_id]), queue_id)
            self.expected[queue_id].append(body)
            messages.append(Message(topic="t", body=body, queue_id=queue_id))
        for put, queue_id in zip(self.store.put_all(messages), queue_ids, strict=True):
            assert put.queue_offset < len(self.expected[queue_id])
        self.workers.step("dispatch")

    def look(self) -> None:
        """Let the time pass between two looks, and make one."""
        self.clock.advance(REST_S)
        self.workers.step("scrub")

    def served(self, reader: StoreReader) -> dict[int, list[bytes]]:
        return {queue_id: bodies(reader, queue_id) for queue_id in (0, 1)}

    def close(self) -> None:
        self.reader.close()
        self.store.close()


def bodies(reader: StoreReader, queue_id: int) -> list[bytes]:
    found = []
    queue_offset = reader.min_offset("t", queue_id)
    while queue_offset < reader.max_offset("t", queue_id):
        result = reader.pull("t", queue_id, queue_offset=queue_offset, max_messages=50)
        data = b"".join(bytes(part) for part in result.slices)
        position = 0
        while position < len(data):
            record = decode_record(data, position)
            found.append(bytes(record.body))
            position += record.total_size
        queue_offset = result.next_offset
    return found


def files(directory: Path) -> list[Path]:
    return sorted((directory / "consumequeue" / "t" / "0").iterdir())


def first(directory: Path) -> None:
    files(directory)[0].unlink()


def middle(directory: Path) -> None:
    files(directory)[1].unlink()


def last(directory: Path) -> None:
    files(directory)[-1].unlink()


def all_of_a_queue(directory: Path) -> None:
    shutil.rmtree(directory / "consumequeue" / "t" / "0")


def all_of_a_topic(directory: Path) -> None:
    shutil.rmtree(directory / "consumequeue" / "t")


def all_queues(directory: Path) -> None:
    shutil.rmtree(directory / "consumequeue")


REMOVALS = [first, middle, last, all_of_a_queue, all_of_a_topic, all_queues]


@pytest.mark.parametrize("files_are_open", [True, False], ids=["open", "shut"])
@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
@pytest.mark.parametrize("remove", REMOVALS, ids=lambda remove: remove.__name__)
def test_every_reader_serves_every_message_after_the_next_look(
    tmp_path: Path, remove: Callable[[Path], None], used: bool, files_are_open: bool
) -> None:
    removed = Removed(tmp_path, used=used)
    removed.look()
    if not files_are_open:
        removed.store.writer._engine.queues._files.close()

    remove(tmp_path)
    removed.put(0, 1)
    removed.look()
    removed.put(0, 0, 1)

    assert removed.served(removed.reader) == removed.expected
    with StoreReader.open(tmp_path) as reader:
        assert removed.served(reader) == removed.expected
    status = removed.store.status().scrub
    assert status.finding_count == 1
    assert "while the store was open; made again" in status.last_finding
    removed.close()
    with MessageStore.open(tmp_path, CONFIG) as store:  # whose start counts the units
        assert store.writer._engine.recovered.start is Start.CLEAN
        assert removed.served(store.reader) == removed.expected


@pytest.mark.parametrize("size", [CONFIG.consume_queue_file_size, 6_000_000])
def test_a_removal_ends_no_writer_and_gives_no_offset_out_again(tmp_path: Path, size: int) -> None:
    removed = Removed(tmp_path, used=False, config=replace(CONFIG, consume_queue_file_size=size))
    removed.store.writer._engine.queues._files.close()

    all_queues(tmp_path)

    [put] = removed.store.put_all([Message(topic="t", body=b"next", queue_id=0)])
    removed.workers.step("dispatch")
    assert put.queue_offset == PER_QUEUE
    assert removed.store.writer.describe_topic("t")[1] == [(0, PER_QUEUE + 1), (0, PER_QUEUE)]
    assert removed.store.writer._engine.failure is None
    removed.close()


def test_it_is_said_once_with_the_number_of_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    removed = Removed(tmp_path, used=True)
    with caplog.at_level(logging.WARNING):
        all_of_a_queue(tmp_path)
        removed.look()
        removed.look()
    [event] = [each.getMessage() for each in caplog.records if "scrub" in each.name]
    assert "queue-file-missing: consumequeue/t/0/00000000000000000000: was removed" in event
    assert "and 3 more files" in event
    removed.close()


def test_no_look_is_made_before_its_time(tmp_path: Path) -> None:
    removed = Removed(tmp_path, used=True)
    removed.look()
    first(tmp_path)
    removed.clock.advance(NAMES_REST_S / 2)
    removed.workers.step("scrub")
    assert removed.store.status().scrub.finding_count == 0
    removed.clock.advance(REST_S)
    removed.workers.step("scrub")
    assert removed.store.status().scrub.finding_count == 1
    removed.close()


def test_looks_that_take_long_come_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)
    scrub = removed.store.writer._engine.scrub
    assert scrub._repairs is not None

    def slow() -> list[object]:
        removed.clock.advance(2.0)
        return []

    monkeypatch.setattr(scrub._repairs, "lost_files", slow)
    removed.clock.advance(REST_S)
    rest_s = scrub.step()
    assert rest_s is not None
    assert rest_s == pytest.approx((2.0 + LOOK_S) / NAMES_SHARE)
    removed.close()


def test_what_a_deletion_removes_is_not_lost(tmp_path: Path) -> None:
    removed = Removed(tmp_path, used=True)
    removed.store.delete_topic("t")
    removed.look()
    removed.store.create_topic("t", 2)
    removed.expected = {0: [], 1: []}
    removed.put(0)
    removed.look()
    assert removed.store.status().scrub.finding_count == 0

    all_of_a_queue(tmp_path)  # of the new topic
    removed.look()

    assert removed.served(removed.reader) == removed.expected
    removed.close()


def test_units_of_deleted_records_become_placeholders_before_the_first(tmp_path: Path) -> None:
    """As a broker makes them, so that the queue begins where the log does."""
    removed = Removed(tmp_path, used=True)
    writer = removed.store.writer
    third = writer._engine.queues.get("t", 0).unit(UNITS_PER_FILE // 2).commit_offset
    writer._engine.scrub._repairs._min_offset = lambda: third  # type: ignore[union-attr]

    first(tmp_path)
    removed.look()

    units = as_units(files(tmp_path)[0].read_bytes())
    sizes = units["size"]
    assert np.all(sizes[: UNITS_PER_FILE // 2] == 0x7FFFFFFF)
    assert np.all(units["offset"][UNITS_PER_FILE // 2 :] >= third)
    removed.close()


def test_a_full_disk_is_said_and_the_next_look_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)
    queues = removed.store.writer._engine.queues
    all_of_a_queue(tmp_path)

    def full(*_: object) -> bool:
        raise StoreFull("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(queues, "make_file_again", full)
        removed.look()
    assert "cannot be made again: no space left" in removed.store.status().scrub.last_finding
    assert removed.store.writer._engine.failure is None
    removed.look()

    with StoreReader.open(tmp_path) as reader:
        assert removed.served(reader) == removed.expected
    removed.close()


def test_a_failing_device_is_no_failure_of_dispatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)
    queues = removed.store.writer._engine.queues
    first(tmp_path)

    def broken(*_: object) -> bool:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(queues, "make_file_again", broken)
        removed.look()
    assert "cannot be made again: [Errno 5]" in removed.store.status().scrub.last_finding
    removed.put(0)
    removed.look()
    assert removed.served(removed.reader) == removed.expected
    removed.close()


@pytest.mark.parametrize("remove", [first, middle, last, all_of_a_queue])
@pytest.mark.parametrize("error", [StoreFull("no space left"), OSError(5, "Input/output error")])
def test_a_file_that_was_made_and_not_filled_is_filled_by_the_next_look(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    remove: Callable[[Path], None],
    error: Exception,
) -> None:
    """A full disk takes a hole, and has no room for the units in it."""
    removed = Removed(tmp_path, used=True)
    before = [each.read_bytes() for each in files(tmp_path)]
    remove(tmp_path)

    def fails(*_: object) -> int:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(queue_repairs, "correct_units", fails)
        removed.look()
    assert "cannot be made again" in removed.store.status().scrub.last_finding
    removed.look()

    assert [each.read_bytes() for each in files(tmp_path)] == before
    assert removed.store.status().scrub.last_finding.endswith("; made again")
    count = removed.store.status().scrub.finding_count
    removed.look()
    assert removed.store.status().scrub.finding_count == count
    removed.close()


def test_each_removal_is_said_and_a_failure_once_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)
    for count in (1, 2):
        first(tmp_path)
        removed.look()
        assert removed.store.status().scrub.finding_count == count
    first(tmp_path)

    def full(*_: object) -> int:
        raise StoreFull("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(queue_repairs, "correct_units", full)
        removed.look()
        removed.look()
    assert removed.store.status().scrub.finding_count == 3
    removed.look()
    assert removed.store.status().scrub.finding_count == 4
    removed.close()


def test_what_cannot_be_made_again_takes_a_tenth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)
    first(tmp_path)

    def slow(*_: object) -> list[object]:
        removed.clock.advance(30.0)  # through much of the log
        raise StoreFull("no space left")

    scrub = removed.store.writer._engine.scrub
    monkeypatch.setattr(scrub._repairs, "make_again", slow)
    removed.clock.advance(REST_S)
    rest_s = scrub.step()
    assert rest_s is not None
    assert rest_s == pytest.approx(30.0 / FAILED_SHARE, rel=0.01)
    removed.close()


def test_names_that_cannot_be_looked_at_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)

    def broken() -> list[object]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(removed.store.writer._engine.scrub._repairs, "lost_files", broken)
    removed.look()
    assert "cannot be read: [Errno 5]" in removed.store.status().scrub.last_finding
    removed.close()


def test_a_topic_that_is_made_again_meanwhile_gets_no_unit_of_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)
    end_offset = removed.store.status().appended_offset
    write = queue_repairs._write

    def made_again_before(*arguments: object) -> None:
        if removed.store.writer._engine.topics.get("t").read_queue_count == 2:
            removed.store.delete_topic("t")
            removed.store.create_topic("t", 3)
            removed.expected = {0: [], 1: []}
            removed.put(*[n % 2 for n in range(2 * PER_QUEUE)])
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_repairs, "_write", made_again_before)
    all_of_a_queue(tmp_path)
    removed.look()

    units = as_units(b"".join(each.read_bytes() for each in files(tmp_path)))[:PER_QUEUE]
    assert np.all(units["offset"] >= end_offset)
    assert removed.served(removed.reader) == removed.expected
    removed.close()


def test_a_damaged_record_is_not_replaced_by_one_of_an_earlier_topic(tmp_path: Path) -> None:
    removed = Removed(tmp_path, used=True)
    removed.store.delete_topic("t")
    end_offset = removed.store.status().appended_offset
    removed.store.create_topic("t", 2)
    removed.expected = {0: [], 1: []}
    removed.put(*[n % 2 for n in range(2 * PER_QUEUE)])
    damaged = removed.store.writer._engine.queues.get("t", 0).unit(3)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(damaged.commit_offset)
        log.write(bytes(damaged.size))

    first(tmp_path)
    removed.look()

    units = as_units(files(tmp_path)[0].read_bytes())
    assert units["size"][3] == 0
    assert np.all(np.delete(units["offset"], 3) >= end_offset)
    removed.close()


def test_files_are_made_while_nothing_is_dispatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)
    engine = removed.store.writer._engine
    make, held = engine.queues.make_file_again, []

    def noted(*arguments: object) -> object:
        held.append(engine.dispatch._stepping.locked())
        return make(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.queues, "make_file_again", noted)
    all_of_a_queue(tmp_path)
    removed.look()
    assert held == [True] * 4
    removed.close()


def test_units_of_deleted_records_become_placeholders_in_later_files_too(tmp_path: Path) -> None:
    """A file that ended in no unit would keep retention from it, and from all after it."""
    removed = Removed(tmp_path, used=True)
    writer = removed.store.writer
    queue = writer._engine.queues.get("t", 0)
    begin = 2 * UNITS_PER_FILE + UNITS_PER_FILE // 2  # in the third file
    min_offset = queue.unit(begin).commit_offset
    writer._engine.scrub._repairs._min_offset = lambda: min_offset  # type: ignore[union-attr]

    for each in files(tmp_path)[1:3]:
        each.unlink()
    removed.look()

    units = as_units(b"".join(each.read_bytes() for each in files(tmp_path)))
    assert np.all(units["size"][:PER_QUEUE] > 0)
    assert np.all(units["size"][UNITS_PER_FILE:begin] == 0x7FFFFFFF)
    assert queue.expired_files(min_offset, PER_QUEUE) == [0, UNITS_PER_FILE * 20]
    removed.close()


def test_a_sync_of_many_files_that_are_gone_ends_no_writer(tmp_path: Path) -> None:
    removed = Removed(tmp_path, used=True)
    removed.store.create_topic("many", 40)
    removed.store.put_all([Message(topic="many", body=b"", queue_id=n) for n in range(40)])
    removed.workers.step("dispatch")

    all_queues(tmp_path)
    removed.workers.step("flush")
    removed.workers.step("checkpoint")

    assert removed.store.writer._engine.failure is None
    removed.look()
    assert removed.served(removed.reader) == removed.expected
    removed.close()


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("remove", [all_of_a_queue, all_of_a_topic, all_queues])
def test_a_topic_whose_files_are_gone_can_be_deleted(
    tmp_path: Path, remove: Callable[[Path], None], used: bool
) -> None:
    removed = Removed(tmp_path, used=used)
    remove(tmp_path)

    removed.store.delete_topic("t")
    removed.look()

    assert removed.store.status().scrub.finding_count == 0
    removed.close()
    with MessageStore.open(tmp_path, CONFIG) as store:  # whose start counts the units
        assert store.writer._engine.recovered.start is Start.CLEAN


def test_a_removal_that_was_interrupted_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(tmp_path, used=True)
    start = removed.store.writer._engine.queues.get("t", 0).file_starts[0]
    queues = removed.store.writer._engine.queues
    remove_directory, went = queues._files.remove_directory, []

    def one_of_two(directory: Path) -> None:
        if went:
            raise StoreBusy("many files are open", retry_delay_ms=1)
        went.append(directory)
        remove_directory(directory)

    with monkeypatch.context() as patched:
        patched.setattr(queues._files, "remove_directory", one_of_two)
        removed.store.delete_topic("t")
    assert went and queues._removing
    assert not list(queues.lost_files())
    assert queues.make_file_again(("t", 0), start) is None  # it was found before the removal began
    assert not (tmp_path / "consumequeue" / "t" / "0").exists()
    removed.look()
    assert removed.store.status().scrub.finding_count == 0
    removed.close()


def test_a_file_that_retention_has_taken_is_not_written_to(tmp_path: Path) -> None:
    removed = Removed(tmp_path, used=True)
    queue = removed.store.writer._engine.queues.get("t", 0)
    units = queue.read(0, 5)
    [path] = queue.release_files([0])
    path.unlink()
    assert not queue.overwrite(0, units)
    assert not path.exists()
    assert queue.first_offset == UNITS_PER_FILE
    removed.close()
