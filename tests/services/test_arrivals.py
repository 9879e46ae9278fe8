"""Waiting for changes: who waits for a key sleeps while others change, and nobody misses its own."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config

from services import arrivals as module
from services.arrivals import Arrivals, Moment, PageSteps
from services.reader.queue_changes import QueueChanges
from storage import MessageStore
from storage.checkpoint.positions import Role
from storage.message import Message
from storage.reader import StoreReader


class Changes:
    """Keys that change: what is announced, and which since the last look."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.change_word = 0
        self.log: list[str] = []
        self.position = 0
        self.says = True

    def wait_for_change(self, seen_word: int, timeout_s: float) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.change_word != seen_word, timeout_s)
            return self.change_word

    def change(self, key: str) -> None:
        """As a writer does: what is to be seen first, then the word."""
        self.log.append(key)
        with self.changed:
            self.change_word += 1
            self.changed.notify_all()

    @property
    def end(self) -> int:
        return len(self.log)

    def look(self) -> set[str] | None:
        begin, self.position = self.position, len(self.log)
        found = set(self.log[begin : self.position])
        return found if self.says and found else None


def arrivals_of(changes: Changes) -> Arrivals:
    announces: Any = changes
    return Arrivals(announces, changes)


async def settled(task: asyncio.Task[bool]) -> None:
    """Give a task that is to go on sleeping the time to do otherwise."""
    await asyncio.wait([task], timeout=0.05)


@pytest.mark.parametrize("says", [True, False])
async def test_nobody_misses_a_change(says: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys change in a thread in any rhythm; whoever waits for one sees each change of it in the end."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 600.0)  # which heals a miss
    changes = Changes()
    changes.says = says
    arrivals = arrivals_of(changes)
    keys, count = "abcd", 300
    wanted: Counter[str] = Counter()
    rng = random.Random(5)
    made = [rng.choice(keys) for _ in range(count)]
    wanted.update(made)

    def change() -> None:
        for number, key in enumerate(made):
            changes.change(key)
            if number % 7 == 0:
                threading.Event().wait(rng.choice([0, 0.0002, 0.001]))

    async def follow(key: str) -> None:
        while True:
            moment = arrivals.moment
            if changes.log.count(key) == wanted[key]:
                return
            await arrivals.wait_for_key(key, moment, 600)

    thread = threading.Thread(target=change)
    thread.start()
    await asyncio.wait_for(asyncio.gather(*(follow(key) for key in keys)), 60)
    thread.join()
    arrivals.close()


async def test_a_change_that_was_looked_at_before_the_wait_is_not_waited_for() -> None:
    """It is in what was looked at, though the word says nothing yet."""
    changes = Changes()
    arrivals = arrivals_of(changes)
    before = arrivals.moment
    changes.log.append("mine")
    changes.look()
    assert not await asyncio.wait_for(arrivals.wait_for_key("mine", before, 60), 10)

    at_end = Moment(changes.change_word, changes.end)
    waiting = asyncio.create_task(arrivals.wait_for_key("mine", at_end, 60))
    await settled(waiting)
    assert not waiting.done()
    arrivals.close()
    assert not await waiting


async def test_a_look_that_finds_nothing_wakes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle store has its waiting pulls left asleep."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    with (
        MessageStore.open(tmp_path / "store", small_config()) as store,
        StoreReader.open(tmp_path / "store") as reader,
    ):
        store.create_topic("t", 2)
        changes = QueueChanges(reader)
        changes.look()  # the first may be about anything
        arrivals = Arrivals(PageSteps(lambda: reader.positions, Role.WRITER), changes)
        moment = arrivals.moment
        waits = [
            asyncio.create_task(arrivals.wait_for_key(("t", queue_id), moment, 60))
            for queue_id in range(2)
        ]
        await asyncio.wait(waits, timeout=0.5)  # of fifty looks
        assert not any(each.done() for each in waits)
        await asyncio.to_thread(store.put, Message(topic="t", body=b"x", queue_id=0))
        assert await asyncio.wait_for(waits[0], 30)
        assert not waits[1].done()
        arrivals.close()
        await waits[1]
