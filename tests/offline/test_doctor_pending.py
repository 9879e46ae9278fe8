"""Damage of half messages, their removals, delayed messages, and of the files that say how far both are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import flips
import pytest
from flips import cut, flip
from hand_store import HALF, OP, HandStore, message

from storage import offline
from storage.message import Message, ProducerSequence

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Iterator[HandStore]:
    """A store that is closed: halves A, B and C, of which B has ended; a delayed message of each kind."""
    store = HandStore(tmp_path / "store")
    store.prepare(message(b"one", "A"), message(b"two", "B"), message(b"three", "C"))
    store.end("B", commit=False)
    store.writer.put([Message(topic="orders", body=b"level", delay_level=9)])
    store.writer.put([Message(topic="orders", body=b"time", delay_ms=3_600_000)])
    store.workers.settle()
    store.workers.step("timers")
    store.close()
    yield store
    store.close()


def wrong(directory: Path) -> list[tuple[str, str, str]]:
    return [(line["severity"], line["kind"], line["file"]) for line in flips.wrong(directory)]


def rows_file(directory: Path) -> Path:
    (path,) = (each for each in (directory / "timers").iterdir() if each.name.isdigit())
    return path


def test_a_sound_store_has_no_findings(store: HandStore) -> None:
    assert wrong(store.directory) == []


def holds(directory: Path) -> list[str]:
    return [
        line["message"]
        for line in offline.doctor(directory)
        if line["severity"] == "note" and "hold the log" in line["message"]
    ]


def test_what_holds_the_log_is_said(store: HandStore) -> None:
    """Of each kind the first record that is pending, for as long as there is one."""
    half = store.records(HALF)[0].commit_offset
    delayed = min(store.records(topic)[0].commit_offset for topic in (SCHEDULE, TIMER))
    halves = f"pending transactions hold the log from commit offset {half} on"
    timers = f"delayed messages hold the log from commit offset {delayed} on"
    assert holds(store.directory) == [halves, timers]
    store.open()
    store.end("A", "C", commit=False)
    store.workers.settle()
    store.close()
    assert holds(store.directory) == [timers]
    store.open()
    store.clock.pass_ms(4_000_000)
    store.workers.settle()
    store.workers.settle()
    store.close()
    assert sorted(store.bodies()) == [b"level", b"time"]
    assert holds(store.directory) == []


@pytest.mark.parametrize(
    ("topic", "kind", "queue_id"),
    [
        (HALF, "half-record", 0),
        (OP, "half-removal", 0),
        (SCHEDULE, "delayed-record", 8),
        (TIMER, "delayed-record", 0),
    ],
)
def test_a_damaged_record_of_the_stores_own_is_named_for_what_it_is(
    store: HandStore, topic: str, kind: str, queue_id: int
) -> None:
    record = store.records(topic)[0]
    flip(store.directory / "commitlog" / f"{0:020d}", record.commit_offset + 88)
    found = wrong(store.directory)
    assert ("damage", kind, f"consumequeue/{topic}/{queue_id}") in found
    assert {each[1] for each in found} == {kind, "log-record"}


@pytest.mark.parametrize(
    "damage",
    [lambda path: flip(path, 9), lambda path: cut(path, path.stat().st_size - 5), Path.unlink],
)
def test_rows_of_delayed_messages_are_named_and_nothing_is_lost(
    store: HandStore, damage: Callable[[Path], None]
) -> None:
    path = rows_file(store.directory)
    damage(path)
    assert wrong(store.directory) == [("warning", "timer-file", f"timers/{path.name}")]
    store.open()
    store.workers.step("timers")
    assert store.writer.timers.status().pending_count == 2
    store.close()
    assert wrong(store.directory) == []


def test_damage_of_the_journal_is_named_until_its_file_is_removed(
    store: HandStore,
) -> None:
    store.open()
    sent = [Message(topic="orders", body=b"once")]
    [first] = store.writer.put(sent, producer=ProducerSequence(77, 1))
    store.close()
    assert wrong(store.directory) == []
    (path,) = (store.directory / "journal").iterdir()
    flip(path, 60)
    assert wrong(store.directory) == [("warning", "journal", f"journal/{path.name}")]
    store.open()
    [again] = store.writer.put(sent, producer=ProducerSequence(77, 1, 1_000))
    assert again == first._replace(repeated=True)
    store.close()
    left = f"journal/{path.name}.damaged"
    assert wrong(store.directory) == [("warning", "journal", left)]
    (store.directory / left).unlink()
    assert wrong(store.directory) == []
