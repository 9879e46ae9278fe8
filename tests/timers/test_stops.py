"""Delayed messages through kills and power cuts at any step: each that was acknowledged comes, and none twice."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from cut_machine import Machine
from engine_store import records_on_disk

from storage.errors import StoreBusy
from storage.message import Message
from storage.timers import worker as timers
from storage.writer import StoreWriter

MESSAGES = 12
ROUNDS = int(os.environ.get("CUTS", "4"))  # of each kind
STEPS_MAX = 250


class Sender:
    """Sends delayed messages, lets time pass between, and keeps what was acknowledged."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.sent = 0
        self.durable: set[bytes] = set()

    def work(self, writer: StoreWriter) -> None:
        if not any(topic.name == "later" for topic in writer.list_topics()):
            writer.create_topic("later", 2)
        while self.sent < MESSAGES:
            number = self.sent
            body = b"message %d" % number
            fields = {"delay_level": 1} if number % 3 == 0 else {"delay_ms": 400 * (number % 7) + 1}
            self.sent += 1  # an attempt that was stopped is not made again
            try:
                writer.put([Message("later", body, **fields)])
            except StoreBusy:
                self.machine.workers.settle()
                continue
            for name in ("flush", "dispatch", "timers"):
                self.machine.workers.step(name)
            if writer.acknowledged_offset >= writer.appended_offset:
                self.durable.add(body)
            self.machine.clock.advance(0.3)
            self.machine.workers.settle()
        self.drain(writer)

    def drain(self, writer: StoreWriter) -> None:
        for _ in range(8):
            self.machine.clock.advance(1)
            self.machine.workers.settle()
        assert writer.timers.status([]).pending_count == 0


@pytest.mark.parametrize("kills", [True, False])
def test_a_stop_at_any_step_loses_nothing_and_repeats_nothing(
    tmp_path: Path, kills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "SAVE_INTERVAL_S", 0.5)
    dice = random.Random(11)
    stops = 0
    for number in range(ROUNDS):
        step = dice.randint(1, STEPS_MAX)
        machine = Machine(tmp_path / str(number), seed=number)
        sender = Sender(machine)
        stops += machine.stop_at(step, sender.work, kills=kills, dice=dice)
        writer = machine.open(flush_mode="sync")
        sender.work(writer)
        writer.close()
        found = Counter(
            record.body for record in records_on_disk(machine.store) if record.topic == "later"
        )
        assert {body for body in sender.durable if not found[body]} == set(), step
        assert {body: count for body, count in found.items() if count > 1} == {}, step
    assert stops >= ROUNDS // 2
