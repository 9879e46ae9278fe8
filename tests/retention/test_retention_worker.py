"""Old files go, whole and oldest first, and what is left is served as before."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cleaned_store import HOUR_MS, CleanedStore
from engine_store import LOG_FILE_SIZE, QUEUE_FILE_SIZE, record
from steps_to_try import ALL_STEPS

from storage.errors import InvalidMessage, StoreFull
from storage.files.protocol import DiskSpace
from storage.message import PullStatus
from storage.queues.queue_table import ExpiredFiles
from storage.reader import StoreReader

LONG_HOURS = 20 * 365 * 24  # from the simulated clock's begin to beyond the real one's time


@pytest.fixture
def store(tmp_path: Path) -> CleanedStore:
    return CleanedStore(tmp_path)


def set_used_percent(store: CleanedStore, percent: int) -> None:
    store.machine.disk.space = lambda _: DiskSpace(percent, 100 - percent)  # type: ignore[method-assign]


def test_expired_files_go_and_the_newest_stays(store: CleanedStore) -> None:
    writer = store.open()
    store.fill(600)
    before = store.log_files
    assert len(before) > 4 and len(store.queue_files) == 6
    store.clean()
    assert store.log_files == before, "nothing has expired"
    store.age()

    store.clean()

    newest = writer.status().appended_offset // LOG_FILE_SIZE * LOG_FILE_SIZE
    assert writer.status().min_commit_offset == newest == min(store.log_files)
    assert writer._engine.positions.min_commit_offset == newest
    kept = store.kept(newest)
    assert store.served() == kept
    assert store.queue_files == [kept[0] * 20 // QUEUE_FILE_SIZE * QUEUE_FILE_SIZE]
    report = writer.retention.report()
    assert report.deleted_file_count * LOG_FILE_SIZE == report.deleted_bytes == newest
    assert report.last_deleted_ms > 0 and report.files[0].start_offset == newest


def test_a_round_deletes_ten_files_at_most(store: CleanedStore) -> None:
    writer = store.open()
    store.fill(2_000)
    assert len(store.log_files) > 12
    store.age()
    worker = store.machine.workers._workers["retention"]
    rests = []
    while (rest_s := worker.step()) is not None:
        rests.append(rest_s)
    assert writer.retention.report().deleted_file_count == 10
    assert rests[:10] == [0.1] * 10


def test_nothing_goes_while_retention_is_off_or_the_hour_is_another(store: CleanedStore) -> None:
    writer = store.open(retention_ms=0)
    store.fill(600)
    before = store.log_files
    set_used_percent(store, 99)
    store.age()
    store.clean()
    writer.append_batch(record())
    assert store.log_files == before
    assert [file.expires_ms for file in writer.retention.report().files] == [0] * len(before)
    writer.close()

    away = (time.localtime(store.machine.clock.now_ms() // 1000).tm_hour + 12) % 24
    set_used_percent(store, 50)
    writer = store.open(retention_delete_hours=f"{away:02d}")
    store.machine.clock.advance(3_700)  # since the newest message seems to have expired
    store.clean()
    assert store.log_files[: len(before)] == before
    set_used_percent(store, 76)
    store.clean()
    assert len(store.log_files) < len(before), "above 75 % the hour does not matter"


def test_a_full_disk_takes_files_of_any_age_and_refuses_appends(store: CleanedStore) -> None:
    writer = store.open()
    store.fill(600)
    set_used_percent(store, 86)
    worker = store.machine.workers._workers["retention"]
    worker.step()
    assert writer.retention.report().deleted_file_count == 1
    writer.append_batch(record())

    set_used_percent(store, 91)
    worker.step()
    with pytest.raises(StoreFull, match="91 % full"):
        writer.append_batch(record())
    assert writer.retention.report().refuses_appends
    set_used_percent(store, 86)
    worker.step()
    with pytest.raises(StoreFull, match="86 % full"):
        writer.append_batch(record())
    set_used_percent(store, 85)
    worker.step()
    writer.append_batch(record())
    assert not writer.retention.report().problem


def test_what_is_needed_stays_and_who_needs_it_is_named(store: CleanedStore) -> None:
    writer = store.open()
    store.fill(600)
    store.age()
    needed = LOG_FILE_SIZE + 5
    writer.followers.register("archive", lambda: needed)
    store.clean()
    assert store.log_files[0] == LOG_FILE_SIZE
    set_used_percent(store, 99)
    store.clean()
    assert store.log_files[0] == LOG_FILE_SIZE
    assert writer.retention.report().files[0].held_by == ("archive",)
    writer.followers.remove("archive")

    writer.followers.register("index-like", lambda: needed, yields=True)
    set_used_percent(store, 50)
    store.clean()
    assert store.log_files[0] == LOG_FILE_SIZE
    set_used_percent(store, 86)
    store.clean()
    assert store.log_files[0] > LOG_FILE_SIZE


def test_files_go_at_once_when_asked_for(store: CleanedStore) -> None:
    writer = store.open(retention_ms=0)
    with pytest.raises(InvalidMessage):
        writer.retention.delete_expired()
    store.fill(2_000)
    store.age(1)
    assert writer.retention.delete_expired(2 * HOUR_MS)
    assert store.log_files[0] == 0
    writer.retention.delete_expired(HOUR_MS // 2)
    store.clean()
    assert writer.status().min_commit_offset == max(
        start for start in store.log_files if start <= writer.status().appended_offset
    )
    assert store.served() == store.kept(writer.status().min_commit_offset)


def test_what_is_held_for_moments_only_goes_when_it_is_asked_for(store: CleanedStore) -> None:
    """Who copies records lets go of the log when it is flushed; a busy log is never flushed to its end."""
    writer = store.open(retention_ms=0)
    store.fill(600)
    store.age(1)
    writer.append_batch(record())

    writer.retention.delete_expired(0)
    store.machine.workers.step("flush")
    store.clean()

    end = writer.status().appended_offset
    assert writer.status().min_commit_offset == end // LOG_FILE_SIZE * LOG_FILE_SIZE > 0


def test_what_is_held_for_longer_stays_and_the_answer_comes(store: CleanedStore) -> None:
    writer = store.open(retention_ms=0)
    store.fill(600)
    store.age(1)
    writer.followers.register("archive", lambda: 5)
    worker = store.machine.workers._workers["retention"]

    assert not writer.retention.delete_expired(0), "it is looked for longer than a test steps"
    looks = 0
    while worker.step() is not None:
        looks += 1

    assert 0 < looks < 20
    assert writer.retention.report().deleted_file_count == 0
    writer.followers.remove("archive")
    worker.step()
    assert writer.retention.report().deleted_file_count == 0, "the call was answered"


def test_a_reader_that_was_there_before_goes_on_at_the_minimum(store: CleanedStore) -> None:
    writer = store.open()
    store.fill(600)
    reader = StoreReader.open(
        store.machine.directory,
        writer.config,
        filesystem=store.machine.disk,
        clock=store.machine.clock,
    )
    held = reader.pull("t", 0, queue_offset=0, max_messages=50)
    assert held.record_count == 50
    before = [bytes(each) for each in held.slices]
    store.age()

    store.clean()

    assert [bytes(each) for each in held.slices] == before, "what is mapped stays readable"
    result = reader.pull("t", 0, queue_offset=50)
    kept = store.kept(writer.status().min_commit_offset)
    assert result.status is PullStatus.OFFSET_TOO_SMALL
    assert result.next_offset == result.min_offset == kept[0] == reader.min_offset("t", 0)
    result = reader.pull("t", 0, queue_offset=result.next_offset, max_messages=1_000)
    assert result.record_count == len(kept) and not result.damaged
    reader.close()


def test_the_index_goes_with_the_log(store: CleanedStore) -> None:
    writer = store.open()
    for number in range(600):
        writer.append_batch(record(keys=f"k{number}", body=b"x" * 400))
    writer._engine.settle()
    writer._engine.checkpointer.checkpoint()
    with store.indexer() as indexer:
        while indexer.step():
            pass
        indexer.sync()
        files_before = indexer.file_count
        assert files_before >= 3
        store.age()
        store.clean()
        store.machine.clock.advance(5)
        for _ in range(20):
            indexer.step()
            store.machine.clock.advance(5)
        assert indexer.file_count < files_before
        reader = StoreReader.open(
            store.machine.directory, writer.config,
            filesystem=store.machine.disk, clock=store.machine.clock,
        )  # fmt: skip
        gone = reader.query_by_key("t", "k3")
        assert not gone.slices and not gone.uncovered
        there = reader.query_by_key("t", "k599")
        assert len(there.slices) == 1 and not there.uncovered
        reader.close()


@pytest.mark.parametrize("kills", [True, False])
def test_a_cleaning_stopped_at_any_step_loses_nothing_above_the_minimum(
    tmp_path: Path, kills: bool
) -> None:
    """And the start after it is a quick one: the queues' count of units is right at every step."""
    outcomes = set()
    for step in range(1, 60, 1 if ALL_STEPS else 3):  # as many as there are
        store = CleanedStore(tmp_path / str(step), step)
        writer = store.open(flush_mode="sync")
        store.fill(400)
        before = writer.status().min_commit_offset
        store.age()
        store.machine.disk.stop_after(step, kills=kills)
        try:
            store.clean()
            was_stopped = False
        except BaseException as error:  # noqa: BLE001
            assert store.machine.disk.successor is not None, error
            was_stopped = True
        store.machine.disk.stop_at = 0
        if kills:
            store.machine.kill()
        else:
            store.machine.cut("mixed")

        writer = store.open(flush_mode="sync")

        minimum = writer.status().min_commit_offset
        assert writer.recovered.start.name == "BOUNDED", writer.recovered.start
        assert minimum >= before and not writer.recovered.damage
        assert store.served() == store.kept(minimum)
        outcomes.add(minimum)
        store.age()
        store.clean()
        end = writer.status().appended_offset
        assert writer.status().min_commit_offset == end // LOG_FILE_SIZE * LOG_FILE_SIZE
        assert len(store.queue_files) == 1
        writer.close()
        writer = store.open(flush_mode="sync")
        assert writer.recovered.start.name == "CLEAN"
        assert store.served() == store.kept(writer.status().min_commit_offset)
        writer.close()
        if not was_stopped:
            break
    assert len(outcomes) >= 3 and step < 59


def test_a_clock_that_jumps_ahead_deletes_nothing_for_an_hour(store: CleanedStore) -> None:
    """Whoever set it by a year has that time to set it right; a full disk does not wait."""
    store.open()
    store.fill(600)
    before = store.log_files
    clock = store.machine.clock
    clock.advance(max(time.time() - clock.now_ms() / 1000, 0))
    store.clean()
    assert store.log_files == before
    right_ms = clock.now_ms
    clock.now_ms = lambda: right_ms() + 365 * 24 * HOUR_MS  # type: ignore[method-assign]

    store.clean()

    assert store.log_files == before
    set_used_percent(store, 86)
    store.machine.workers.step("retention")
    assert len(store.log_files) == len(before) - 1
    set_used_percent(store, 50)
    clock.advance(3_700)
    store.clean()
    assert len(store.log_files) < len(before) - 1


def jump(store: CleanedStore, hours: int) -> None:
    """Set the wall clock, and not the other one."""
    clock = store.machine.clock
    right_ms = clock.now_ms
    clock.now_ms = lambda: right_ms() + hours * HOUR_MS  # type: ignore[method-assign]


@pytest.mark.parametrize("kills", [True, False])
def test_a_jump_while_the_writer_is_down_costs_an_hour(store: CleanedStore, kills: bool) -> None:
    writer = store.open()
    store.fill(600)
    if kills:
        store.machine.kill()
    else:
        writer.close()
    before = store.log_files
    jump(store, LONG_HOURS)
    store.open()
    store.clean()
    assert store.log_files == before
    store.machine.clock.advance(3_700)
    store.clean()
    assert len(store.log_files) < len(before)


def test_a_topic_made_again_while_its_old_files_go_keeps_its_new_ones(store: CleanedStore) -> None:
    writer = store.open()
    store.fill(600)
    store.age()
    worker = store.machine.workers._workers["retention"]
    cleaning = writer.retention._cleaning
    for _ in range(300):
        if cleaning._released:
            break
        worker.step()
    assert cleaning._released and store.queue_files[0] == 0
    writer.delete_topic("t")
    writer.create_topic("t", 1)
    for _ in range(150):
        writer.append_batch(record())
    writer._engine.settle()
    files = store.queue_files
    assert len(files) == 2

    while worker.step() is not None:
        pass

    assert store.queue_files == files
    queues = writer._engine.queues
    old = queues.get("t", 0)
    stale = ExpiredFiles(old, [0])
    writer.delete_topic("t")
    writer.create_topic("t", 1)
    for _ in range(150):
        writer.append_batch(record())
    writer._engine.settle()
    assert queues.release_files(stale) == ([], 0), "of another life of the topic"


def test_queues_are_looked_at_again_after_an_error(store: CleanedStore) -> None:
    store.open()
    store.fill(600)
    store.age()
    disk = store.machine.disk
    unlink = disk.unlink

    def fails(path: Path) -> None:
        if "consumequeue" in path.parts:
            raise OSError(5, "I/O error")
        unlink(path)

    disk.unlink = fails  # type: ignore[method-assign]
    store.clean()
    assert len(store.queue_files) > 1
    disk.unlink = unlink  # type: ignore[method-assign]

    store.clean()

    assert len(store.queue_files) == 1
