"""Kills and power cuts at any step: nothing unacknowledged is lost, nothing that was promised comes again."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from lease_store import ORDERLY, TOPIC, LeaseStore, bodies, put_messages
from steps_to_try import steps_to_try, stops_to_try

from storage import Message
from storage.testing import SimulatedDisk
from storage.testing.disk import ProcessStopped, free_stopped_stores

MESSAGES = 48
HANDLE = 40
SEEDS = 30


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("template") / "store"
    put_messages(
        store,
        [
            Message(TOPIC, b"%d" % n, queue_id=n % 2, properties={"__SHARDINGKEY": f"k{n % 5}"})
            for n in range(MESSAGES)
        ],
        queues=2,
    )
    return store


class Consumer:
    """Knows of each message whether it must come, may come, or must not."""

    def __init__(self) -> None:
        self.open = set(range(MESSAGES))  # must come
        self.answered: set[int] = set()  # acknowledged; a power cut may bring it again
        self.durable: set[int] = set()  # must not come
        self.held: dict[int, bytes] = {}

    def start(self, disk: SimulatedDisk, clock_ms: int) -> None:
        self.store = LeaseStore(disk.root, filesystem=disk)
        self.store.clock.ms = clock_ms

    def receive(self, count: int = 8) -> None:
        batch = self.store.receive(count, ORDERLY, lease_ms=1_000)
        for number, body in enumerate(bodies(batch)):
            assert body not in self.durable | self.answered, "acknowledged, and came again"
            self.held[body] = batch.receipt_handles[number * HANDLE :][:HANDLE]

    def acknowledge(self, chosen: list[int]) -> None:
        handles = [self.held.pop(body) for body in chosen]
        self.open -= set(chosen)  # from here on it may be acknowledged, whatever comes of the call
        refused = {each.handle_index for each in self.store.acknowledge(b"".join(handles))}
        self.open |= {body for number, body in enumerate(chosen) if number in refused}
        self.answered |= {body for number, body in enumerate(chosen) if number not in refused}

    def sync(self) -> None:
        self.store.leases.topics_of(ORDERLY.name)  # opens the journal
        self.store.leases.sync()
        self.durable |= self.answered
        self.answered.clear()

    def stopped(self, *, was_killed: bool) -> None:
        if not was_killed:
            self.answered.clear()
        self.held.clear()

    def drain(self) -> None:
        """Everything that must come comes."""
        came = set()
        for _ in range(MESSAGES * 2):
            self.store.clock.pass_ms(1_000)
            self.receive(MESSAGES)
            came |= set(self.held)
            self.store.acknowledge(b"".join(self.held.values()))
            self.held.clear()
            if all(
                each.group_offset == MESSAGES // 2
                for each in self.store.leases.progress(ORDERLY, TOPIC)
            ):
                break
        assert self.open <= came
        offsets = [each.group_offset for each in self.store.leases.progress(ORDERLY, TOPIC)]
        assert offsets == [MESSAGES // 2] * 2

    def check_offsets(self, directory: Path) -> None:
        """A broker that opens the store meets every message that must come."""
        fetched = self.store.reader.consumer_offsets.fetch_group(ORDERLY.name).get(TOPIC, {})
        for queue_id, offset in fetched.items():
            assert all(body // 2 >= offset for body in self.open if body % 2 == queue_id)


def copy_to(disk: SimulatedDisk, template: Path) -> None:
    """Have the store on a disk as if it had always been there."""
    shutil.copytree(template, disk.root, dirs_exist_ok=True)
    for path in disk.root.iterdir():
        disk.trust(path)


def story(disk: SimulatedDisk, consumer: Consumer) -> None:
    """A little of everything."""
    consumer.start(disk, 1_700_000_000_000)
    consumer.receive()
    consumer.acknowledge(list(consumer.held)[:3])
    consumer.sync()
    consumer.store.change(next(iter(consumer.held.values())), 0)
    consumer.receive()
    consumer.store.leases.save_offsets()
    consumer.acknowledge(list(consumer.held)[1:4])
    consumer.store.leases.compact(always=True)
    consumer.acknowledge(list(consumer.held)[:2])
    consumer.sync()
    consumer.receive()
    consumer.store.leases.close()


@pytest.mark.parametrize(("kills", "share"), [(True, 0), (False, 1)], ids=["killed", "cut"])
def test_a_stop_at_every_step(tmp_path: Path, template: Path, kills: bool, share: int) -> None:
    consumers = []

    def work(disk: SimulatedDisk) -> None:
        copy_to(disk, template)
        consumers.append(Consumer())
        story(disk, consumers[-1])

    steps = 0
    for run in stops_to_try(tmp_path / "runs", work, 6, start=share, kills=kills):
        consumer = consumers[-1]
        consumer.stopped(was_killed=kills)
        consumer.start(run.disk, 1_700_000_000_000)
        consumer.check_offsets(run.disk.root)
        consumer.drain()
        consumer.store.leases.close()
        steps = run.step
    assert steps > 40


def live(consumer: Consumer, disk: SimulatedDisk, dice: random.Random, clock_ms: int) -> None:
    consumer.start(disk, clock_ms)
    for _ in range(dice.randrange(4, 30)):
        what = dice.randrange(9)
        if what <= 2:
            consumer.receive(dice.choice([1, 5, 20]))
        elif what <= 4:
            held = list(consumer.held)
            consumer.acknowledge(dice.sample(held, dice.randrange(len(held) + 1)))
        elif what == 5:
            consumer.store.clock.pass_ms(dice.choice([1, 400, 1_000]))
        elif what == 6:
            consumer.sync()
        elif what == 7:
            consumer.store.leases.save_offsets()
        else:
            consumer.store.leases.compact(always=True)
    if dice.random() < 0.3:
        consumer.store.leases.close()


def test_stops_one_after_the_other(tmp_path: Path, template: Path) -> None:
    for seed in steps_to_try(range(SEEDS), 10):
        dice = random.Random(seed)
        free_stopped_stores()
        root = tmp_path / str(seed)
        disk = SimulatedDisk(root / "0", dice)
        copy_to(disk, template)
        consumer, clock_ms = Consumer(), 1_700_000_000_000
        try:
            for session in range(4):
                kills = dice.random() < 0.5
                disk.new_root = lambda root=root, session=session: root / str(session + 1)
                disk.stop_after(dice.randrange(1, 60), kills=kills)
                with suppress(ProcessStopped):
                    live(consumer, disk, dice, clock_ms)
                clock_ms = consumer.store.clock.ms
                disk = disk.stop(kills=kills)
                consumer.stopped(was_killed=kills)
            consumer.start(disk, clock_ms)
            consumer.check_offsets(disk.root)
            consumer.drain()
            consumer.store.leases.close()
        except BaseException as error:
            error.add_note(f"seed {seed}\n" + "\n".join(disk.trace[-20:]))
            raise
        shutil.rmtree(root)
