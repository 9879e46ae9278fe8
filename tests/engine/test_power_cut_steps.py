"""Kills at each step, failed syncs, and then a cut that takes all that was not synced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from cut_machine import Machine
from engine_store import queue_units_on_disk, record, records_on_disk

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


@pytest.mark.parametrize("kills", [True, False])
def test_a_deletion_stopped_at_any_step_is_done_or_has_not_begun(
    tmp_path: Path, kills: bool
) -> None:
    outcomes = []
    for step in range(1, STEPS_MAX):
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


@pytest.mark.parametrize("dispatched", [True, False])
def test_what_a_failed_sync_left_in_memory_is_durable_once_a_start_has_recovered_it(
    machine: Machine, dispatched: bool
) -> None:
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
    machine.cut()

    writer = machine.open()

    assert writer.appended_offset == end and not writer.recovered.damage
    assert writer.recovered.units_written == 0
    assert len(records_on_disk(machine.store)) == 100
    assert len(queue_units_on_disk(machine.store, "t", 0)) == 100


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
