"""Kills at each step, failed syncs, and then a cut that takes all that was not synced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from cut_machine import Machine
from engine_store import record

from storage.errors import StoreFailed, StoreFull
from storage.testing import ProcessStopped
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
