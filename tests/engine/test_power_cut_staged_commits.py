"""Staged commits through kills and power cuts at any step: each record is stored, and only once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cut_machine import Machine
from engine_store import append, record
from staged_records import intact_bodies_on_disk, stage
from steps_to_try import ALL_STEPS

from storage.errors import StageNotFound
from storage.testing import ProcessStopped
from storage.writer import StoreWriter

SIZE = 60
STEPS_MAX = 300


def bodies_of(part: int) -> list[bytes]:
    return [b"part %d record %d " % (part, i) + b"x" * 150 for i in range(SIZE)]


class Driver:
    """Stages two parts and commits them, from the start again wherever it was stopped."""

    def __init__(self) -> None:
        self.staged: list[str] = []
        self.is_committed = False
        self.round = 0

    def work(self, writer: StoreWriter) -> None:
        if not writer.list_topics():
            writer.create_topic("t", 2)
        while not self.is_committed:
            self.round += 1
            try:
                self._commit(writer)
            except StageNotFound:
                # Only what was never acknowledged may be unknown.
                assert not self.staged, "a stage is lost"

    def _commit(self, writer: StoreWriter) -> None:
        for part in range(len(self.staged), 2):
            append(writer, record(body=b"beside"))
            blocks = [bodies_of(part)[i : i + 10] for i in range(0, SIZE, 10)]
            attempt = f"{part}-{self.round}"
            if stage(writer.staged, "app", 0, attempt, blocks, queue_count=2):
                self.staged.append(attempt)
            else:
                assert len(self.staged) == 2, "decided without a part"
        writer.staged.commit("app", 0, self.staged)
        self.is_committed = True


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
@pytest.mark.parametrize("kills", [True, False])
def test_a_stop_at_any_step_and_a_cut_after_it(
    tmp_path: Path, flush_mode: str, kills: bool
) -> None:
    dice = random.Random(7)
    step = 0
    was_stopped = True
    while was_stopped:
        step += dice.randint(1, 4 if ALL_STEPS else 10)
        machine = Machine(tmp_path / str(step), seed=step)
        driver = Driver()
        writer = machine.open(flush_mode=flush_mode)
        was_stopped = False
        machine.disk.stop_after(step, kills=kills)
        try:
            driver.work(writer)
        except ProcessStopped:
            was_stopped = True
        if kills and was_stopped:
            machine.kill()
            if dice.random() < 0.5:  # the next start is stopped, too
                machine.disk.stop_at = dice.randint(1, 40)
                try:
                    machine.open(flush_mode=flush_mode)
                except ProcessStopped:
                    machine.cut("")
                machine.disk.stop_at = 0
        else:
            machine.cut("")
        if machine.disk.successor is not None:
            machine.cut("")
        machine.kill()
        driver.work(machine.open(flush_mode=flush_mode))
        machine.cut()
        writer = machine.open(flush_mode=flush_mode)
        assert writer.staged.commit("app", 0, ["0", "1"])[1]
        found = [
            body for body in intact_bodies_on_disk(machine.directory) if body.startswith(b"part")
        ]
        assert sorted(found) == sorted(bodies_of(0) + bodies_of(1)), step
        assert step < STEPS_MAX
    assert step > 60
