"""Kills at each step, failed syncs, and then a cut that takes all that was not synced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cut_machine import Machine
from engine_store import queue_units_on_disk, record, records_on_disk
from steps_to_try import ALL_STEPS

from storage.errors import StoreFailed, StoreFull
from storage.queues.queue_files import OpenQueueFiles
from storage.testing import ProcessStopped
from storage.view.log.recovery_cases import Start
from storage.writer import StoreWriter

STEPS_MAX = 400


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def flush(writer: StoreWriter) -> None:
    writer._engine.flusher.step()


def stopped_at(machine: Machine, step: int, work: Callable[[], object], *, kills: bool) -> bool:
    """Work until the step of that number from now; return whether there was one."""
    machine.disk.stop_after(step, kills=kills)
    try:
        work()
    except (ProcessStopped, StoreFailed):
        return True
    machine.disk.stop_at = 0
    return False


def test_a_start_killed_at_any_step_leaves_nothing_that_a_later_cut_takes(tmp_path: Path) -> None:
    for step in range(1, STEPS_MAX):
        machine = Machine(tmp_path / str(step))
        was_stopped = stopped_at(machine, step, machine.open, kills=True)
        machine.kill()
        writer = machine.open(flush_mode="sync")
        writer.create_topic("t", 1)
        end = writer.append_batch(record()).end_commit_offset
        flush(writer)
        machine.cut()
        writer = machine.open()
        assert [topic.name for topic in writer.list_topics()] == ["t"]
        assert writer.appended_offset == end
        if not was_stopped:
            break
    assert 20 < step < STEPS_MAX - 1


@pytest.mark.parametrize("kills", [True, False])
def test_a_deletion_stopped_at_any_step_is_done_or_has_not_begun(
    tmp_path: Path, kills: bool
) -> None:
    outcomes = []
    for step in range(1, STEPS_MAX, 1 if ALL_STEPS else 2):
        machine = Machine(tmp_path / str(step))
        writer = machine.open(flush_mode="sync")
        writer.create_topic("t", 1)
        for _ in range(2):
            writer.append_batch(record())
            writer._engine.settle()
            writer._engine.checkpointer.checkpoint()
        writer.append_batch(record())  # its unit is behind what the checkpoint promises
        was_stopped = stopped_at(machine, step, lambda w=writer: w.delete_topic("t"), kills=kills)
        if kills:
            machine.kill()
        for _ in range(2):  # and what the next start has made of it, a cut leaves
            if not kills or _:
                machine.cut()
            writer = machine.open(flush_mode="sync")
            there = [topic.name for topic in writer.list_topics()] == ["t"]
            queues = list((machine.store / "consumequeue").iterdir())
            if there:
                assert len(queue_units_on_disk(machine.store, "t", 0)) >= 2
                assert writer.describe_topic("t")[1][0][1] >= 2
            else:
                assert not queues
            outcomes.append(there)
        if not was_stopped:
            break
    assert set(outcomes) == {True, False}
    assert not outcomes[-1]


@pytest.mark.parametrize("full_at", ["penstock.json", "topics.json"])
def test_a_deletion_for_which_there_is_no_space_has_not_happened(
    machine: Machine, full_at: str
) -> None:
    writer = machine.open()
    writer.create_topic("t", 1)
    writer.append_batch(record())
    machine.disk.fault, machine.disk.faults_left = (errno.ENOSPC, 0), 9
    machine.disk.fault_at = full_at
    with pytest.raises(StoreFull):
        writer.delete_topic("t")
    writer.append_batch(record())
    flush(writer)
    machine.kill()

    writer = machine.open()

    assert writer.describe_topic("t")[1] == [(0, 2)]


def test_a_kill_at_any_step_takes_nothing_out_of_the_pool(tmp_path: Path) -> None:
    for step in range(1, STEPS_MAX):
        machine = Machine(tmp_path / str(step))
        writer = machine.open(transient_pool=True)
        writer.create_topic("t", 1)
        told: list[bytes] = []

        def work(writer: StoreWriter = writer, told: list[bytes] = told) -> None:
            for number in range(40):
                body = b"%d " % number + b"x" * 5_000
                writer.append_batch(record(body=body))
                told.append(body)
                if number % 3 == 2:
                    writer._engine.committer.step()
                if number % 7 == 6:
                    flush(writer)

        was_stopped = stopped_at(machine, step, work, kills=True)
        machine.kill()
        machine.open(transient_pool=True)
        assert [each.body for each in records_on_disk(machine.store)][: len(told)] == told
        if not was_stopped:
            break
    assert 20 < step < STEPS_MAX - 1


def test_a_close_that_finds_no_space_for_units_is_none_in_order(machine: Machine) -> None:
    writer = machine.open()
    writer.create_topic("t", 1)
    writer.append_batch(record())
    machine.disk.fault, machine.disk.faults_left = (errno.ENOSPC, 0), 99
    machine.disk.fault_at = "consumequeue"
    writer.close()
    machine.disk.fault = None
    machine.cut()

    assert machine.open().describe_topic("t")[1] == [(0, 1)]


def test_what_a_start_recovers_of_several_files_is_durable(machine: Machine) -> None:
    writer = machine.open()
    writer.create_topic("t", 1)
    for _ in range(300):
        end = writer.append_batch(record(body=b"x" * 300)).end_commit_offset
    assert len(list((machine.store / "commitlog").iterdir())) > 1
    machine.kill()
    assert machine.open().appended_offset == end
    machine.cut()

    writer = machine.open()

    assert writer.appended_offset == end and not writer.recovered.damage
    assert writer.describe_topic("t")[1] == [(0, 300)]
    assert len(records_on_disk(machine.store)) == 300


@pytest.mark.parametrize("checkpointed", [True, False])
@pytest.mark.parametrize("dispatched", [True, False])
def test_what_a_failed_sync_left_in_memory_is_durable_once_a_start_has_recovered_it(
    machine: Machine, dispatched: bool, checkpointed: bool
) -> None:
    """Its units are so from the start's first checkpoint on; until then the next start makes them again."""
    writer = machine.open(flush_mode="async" if dispatched else "sync")
    writer.create_topic("t", 1)
    for _ in range(100):
        end = writer.append_batch(record(body=b"x" * 300)).end_commit_offset
    machine.disk.fault_leaves = "none"
    if dispatched:
        writer._engine.dispatch.wait(end, 0)
        machine.disk.fault, machine.disk.faults_left = (errno.EIO, 0), 9
        with pytest.raises(StoreFailed):
            writer._engine.checkpointer.checkpoint(always=True)
    machine.disk.fault, machine.disk.faults_left = (errno.EIO, 0), 1
    with pytest.raises(StoreFailed):
        flush(writer)
    machine.disk.fault = None
    machine.kill()
    assert machine.open().appended_offset == end
    if checkpointed:
        machine.workers.step("checkpoint")
    machine.cut()

    writer = machine.open()

    assert writer.appended_offset == end and not writer.recovered.damage
    assert writer.recovered.units_written == (0 if checkpointed else 100)
    assert len(records_on_disk(machine.store)) == 100
    assert len(queue_units_on_disk(machine.store, "t", 0)) == 100


def test_a_start_after_a_kill_syncs_no_queue_and_promises_no_more_of_them(machine: Machine) -> None:
    writer = machine.open()
    writer.create_topic("t", 40)
    batch = b"".join(record(queue_id=each) for each in range(40))
    writer.append_batch(batch)
    writer._engine.settle()
    writer._engine.checkpointer.checkpoint()
    before = writer._engine.positions.durable.load()
    end = writer.append_batch(batch).end_commit_offset
    writer._engine.settle()
    for _ in range(3):  # and the next one, whatever a cut took
        machine.kill()
        writer = machine.open()
        assert not any("sync store/consumequeue" in step for step in machine.disk.trace)
        durable = writer._engine.positions.durable.load()
        assert durable.flushed_offset == end
        assert durable.dispatched_offset == before.dispatched_offset
        assert durable.unit_count == before.unit_count == 40
        assert {each for _, each in writer.describe_topic("t")[1]} == {2}
    machine.cut()
    writer = machine.open()
    assert writer.recovered.units_written == 40
    assert {each for _, each in writer.describe_topic("t")[1]} == {2}

    machine.workers.step("checkpoint")

    assert writer._engine.positions.durable.load().unit_count == 80
    machine.cut()
    assert machine.open().recovered.units_written == 0


def test_no_append_waits_for_a_first_checkpoint_since_a_topic_is_deleted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = machine.open()
    for topic in "tu":
        writer.create_topic(topic, 1)
        writer.append_batch(record(topic))
    writer._engine.settle()
    machine.kill()
    writer = machine.open()
    waits: list[bool] = []
    write_again = OpenQueueFiles.write_again

    def written(files: OpenQueueFiles, *place: Any) -> None:
        waits.append(writer._appender.lock.locked())
        write_again(files, *place)

    monkeypatch.setattr(OpenQueueFiles, "write_again", written)

    writer.delete_topic("u")

    assert waits == [False, False]


def test_what_units_say_beyond_the_log_is_durable_before_anything_is_served(
    machine: Machine,
) -> None:
    """The last record of a queue is damaged: its unit keeps the queue offset, also through a cut after the start."""
    writer = machine.open()
    writer.create_topic("t", 2)
    places = [writer.append_batch(record(queue_id=each)) for each in (0, 0, 0, 1)]
    flush(writer)
    writer._engine.checkpointer.checkpoint()  # which promises the records, and no unit yet
    writer._engine.settle()
    machine.kill()
    path = machine.store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[places[3].commit_offset - 5] ^= 1
    path.write_bytes(data)
    machine.disk.trust(path)
    assert machine.open().describe_topic("t")[1] == [(0, 3), (0, 1)]
    machine.cut()

    assert machine.open().describe_topic("t")[1] == [(0, 3), (0, 1)]


def test_what_units_have_decided_is_durable_before_anything_is_served(machine: Machine) -> None:
    """Two records claim places ahead of theirs, which only their units tell: a cut after the start takes those units."""
    writer = machine.open(append_property_crc=False)
    writer.create_topic("t", 2)
    in_order = (0, 0, 0, 1, 1, 1, 0, 0)  # there is room for what would be missing
    batches = [record(queue_id=each, property_crc=False) for each in in_order]
    places = [writer.append_batch(each).commit_offset for each in batches]
    flush(writer)
    writer._engine.checkpointer.checkpoint()  # which promises the records, and no unit yet
    writer._engine.settle()
    machine.kill()
    path = machine.store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for place, queue_offset in zip(places[-2:], (3, 4), strict=True):
        assert data[place + 27] == queue_offset
        data[place + 27] += 2
    path.write_bytes(data)
    machine.disk.trust(path)
    assert machine.open().describe_topic("t")[1] == [(0, 5), (0, 3)]
    machine.cut()

    assert machine.open().describe_topic("t")[1] == [(0, 5), (0, 3)]


def test_a_unit_that_was_wrong_is_durable_once_a_start_has_corrected_it(machine: Machine) -> None:
    writer = machine.open()
    writer.create_topic("t", 1)
    for _ in range(5):
        writer.append_batch(record())
    writer._engine.settle()
    machine.kill()
    path = machine.store / "consumequeue" / "t" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[45] ^= 1
    path.write_bytes(data)
    machine.disk.trust(machine.store / "consumequeue")
    assert machine.open().recovered.units_written == 1
    machine.cut()

    assert machine.open().recovered.units_written == 0


def test_a_file_that_a_clean_start_has_made_shorter_is_durable(machine: Machine) -> None:
    writer = machine.open()
    writer.create_topic("t", 1)
    writer.append_batch(record())
    writer.close()
    path = machine.store / "consumequeue" / "t" / "0" / f"{0:020d}"
    with path.open("ab") as file:
        file.write(b"x")
    machine.disk.trust(path)
    machine.kill()

    assert machine.open().recovered.start is Start.CLEAN

    synced = [step for step in machine.disk.trace if "sync store/consumequeue/t/0" in step]
    assert {step.rsplit(" ")[-1] for step in synced} == {
        f"store/consumequeue/t/0/{0:020d}", "store/consumequeue/t/0",
    }  # fmt: skip
    assert len(queue_units_on_disk(machine.store, "t", 0)) == 1


def test_units_of_a_lost_end_of_the_log_do_not_come_back_once_it_goes_on(machine: Machine) -> None:
    """A cut takes the end of the log and leaves its units; one after the start must not leave them beside new records."""
    writer = machine.open()
    writer.create_topic("t", 2)
    writer.append_batch(record(queue_id=0))
    flush(writer)
    writer._engine.settle()
    writer._engine.checkpointer.checkpoint()
    writer.append_batch(record(queue_id=1, body=b"x" * 300))
    writer.wait_dispatched(writer.appended_offset, 0)
    machine.disk.trust(machine.store / "consumequeue")  # written back unasked
    machine.cut()
    assert len(queue_units_on_disk(machine.store, "t", 1)) == 1
    assert machine.open().describe_topic("t")[1] == [(0, 1), (0, 0)]

    machine.cut()

    assert len(queue_units_on_disk(machine.store, "t", 1)) == 0


def test_units_that_find_no_space_to_be_written_again_end_nothing(machine: Machine) -> None:
    """A deletion makes the first checkpoint after a start: it is decided, and done when there is space."""
    writer = machine.open()
    for topic in ("t", "u"):
        writer.create_topic(topic, 1)
        writer.append_batch(record(topic))
    writer._engine.settle()
    machine.kill()
    writer = machine.open()
    machine.disk.fault, machine.disk.faults_left = (errno.ENOSPC, 0), 99
    machine.disk.fault_at = "consumequeue"
    writer.delete_topic("u")
    assert writer.failure() is None
    machine.disk.fault = None

    writer.create_topic("u", 1)

    assert [writer.describe_topic(topic)[1] for topic in ("t", "u")] == [[(0, 1)], [(0, 0)]]
    machine.cut()
    writer = machine.open()
    assert writer.recovered.start is Start.BOUNDED
    assert [writer.describe_topic(topic)[1] for topic in ("t", "u")] == [[(0, 1)], [(0, 0)]]


def test_a_table_of_topics_that_could_not_be_synced_ends_writing(machine: Machine) -> None:
    writer = machine.open()
    writer.create_topic("t", 1)
    for change in (
        lambda: writer.create_topic("u", 1),
        lambda: writer.append_batch(record()),
        lambda: writer.delete_topic("t"),
    ):
        machine.disk.fault, machine.disk.faults_left = (errno.EIO, 0), 1
        with pytest.raises(StoreFailed):
            change()
