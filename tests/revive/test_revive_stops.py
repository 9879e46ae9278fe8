"""Kills and power cuts at any step: what a broker had handed out comes again, what was acknowledged never."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cut_machine import Machine
from engine_store import records_on_disk

from storage.errors import StoreBusy
from storage.message import Message
from storage.writer import StoreWriter

REVIVE = "rmq_sys_REVIVE_LOG_test"
RETRY = "%RETRY%billing_orders"
MESSAGES = 10
ROUNDS = int(os.environ.get("CUTS", "4"))  # of each kind
STEPS_MAX = 250
LEASE_MS = 1_500


class Broker:
    """Leaves messages, checkpoints of them and acknowledgements of a third; keeps what of it is durable."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.sent = 0
        self.open: set[bytes] = set()
        self.done: set[bytes] = set()

    def prepare(self) -> None:
        writer = self.machine.open(flush_mode="sync")
        for topic in (REVIVE, "orders"):
            writer.create_topic(topic, 2)
        writer.close()

    def work(self, writer: StoreWriter) -> None:
        while self.sent < MESSAGES:
            number = self.sent
            self.sent += 1  # an attempt that was stopped is not made again
            body = b"message %d" % number
            try:
                [stored] = writer.put([Message("orders", body, queue_id=0)])
                names = {
                    "bn": "b", "c": "billing", "pt": self.machine.clock.now_ms(), "q": 0,
                    "so": stored.queue_offset, "t": "orders",
                }  # fmt: skip
                self.tell(writer, "ck", number % 2, names | {"d": [0], "it": LEASE_MS, "n": 1})
                is_done = number % 3 == 0
                if is_done:
                    self.tell(writer, "ack", number % 2, names | {"ao": stored.queue_offset})
            except StoreBusy:
                self.machine.workers.settle()
                continue
            end = writer.appended_offset
            for name in ("flush", "dispatch", "timers"):
                self.machine.workers.step(name)
            if writer.acknowledged_offset >= end:
                (self.done if is_done else self.open).add(body)
            self.machine.clock.advance(0.3)
            self.machine.workers.settle()
        for _ in range(6):
            self.machine.clock.advance(1)
            self.machine.workers.settle()

    def tell(self, writer: StoreWriter, tag: str, queue_id: int, fields: dict[str, Any]) -> None:
        due_ms = fields["pt"] + LEASE_MS - (1_000 if tag == "ck" else 0)
        body = json.dumps(fields).encode()
        writer.put([Message(REVIVE, body, queue_id=queue_id, tag=tag, deliver_at_ms=due_ms)])


@pytest.mark.parametrize("kills", [True, False])
def test_a_stop_at_any_step_loses_nothing_and_repeats_nothing(tmp_path: Path, kills: bool) -> None:
    """But for a power cut, which may leave copies without the acknowledgements behind them."""
    dice = random.Random(17)
    stops = 0
    for number in range(ROUNDS):
        step = dice.randint(1, STEPS_MAX)
        machine = Machine(tmp_path / str(number), seed=number)
        broker = Broker(machine)
        broker.prepare()
        stops += machine.stop_at(step, broker.work, kills=kills, dice=dice)
        writer = machine.open(flush_mode="sync")
        broker.work(writer)
        writer.close()
        found = Counter(
            each.body for each in records_on_disk(machine.directory) if each.topic == RETRY
        )
        assert {body for body in broker.open if not found[body]} == set(), step
        assert {body for body in broker.done if found[body]} == set(), step
        assert not kills or max(found.values(), default=1) == 1, step
    assert stops >= ROUNDS // 2
