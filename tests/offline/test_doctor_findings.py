"""The doctor names each kind of damage, where it is, what it costs and what repairs it; on a running store too."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flips import cut, flip, overwrite, wrong
from steps_to_try import steps_to_try

from storage import MessageStore, StoreConfig, offline
from storage.findings import KINDS
from storage.format.checkpoint import INDEXER_SLOT_POSITIONS, WRITER_SLOT_POSITIONS
from storage.format.consume_entry import UNIT_SIZE
from storage.message import Message
from storage.reader import StoreReader

ROOT = Path(__file__).resolve().parents[2]
CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=400, index_slot_count=7,
    index_entry_count=500,
)  # fmt: skip
QUEUE = Path("consumequeue/t/0")
MESSAGES = 60  # in three queue files of 20 units
Damager = Callable[[Path], object]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A stopped store of 60 messages with keys in one queue."""
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        store.create_topic("t", 1)
        put(store, MESSAGES)
    return tmp_path / "s"


def put(store: MessageStore, count: int) -> None:
    for n in range(count):
        store.put(Message(topic="t", body=bytes(3000), keys=(f"k{n}",)))


def queue_file(number: int) -> Path:
    return QUEUE / f"{number * 400:020d}"


def places(found: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (line["severity"], line["kind"], line["file"], line.get("begin"), line.get("end"))
        for line in found
    ]


def test_a_stopped_store_is_sound(directory: Path) -> None:
    assert wrong(directory) == []


def test_a_deleted_topic_lacks_nothing(tmp_path: Path) -> None:
    """Nor does one that was made again: its earlier records are in no queue."""
    with MessageStore.open(tmp_path, CONFIG) as store:
        for name in ("t", "u"):
            store.create_topic(name, 1)
            store.put(Message(topic=name, body=b"one"))
            store.put(Message(topic=name, body=b"two"))
        store.delete_topic("t")
        store.delete_topic("u")
        store.create_topic("u", 1)
        store.put(Message(topic="u", body=b"three"))
        assert store.max_offset("u", 0) == 1
        assert wrong(tmp_path) == []
    assert wrong(tmp_path) == []


@pytest.mark.parametrize("byte", steps_to_try(range(UNIT_SIZE), 4))
def test_a_flipped_bit_of_a_unit_is_named_with_its_queue_offset(directory: Path, byte: int) -> None:
    """The rest of the queue is not hidden by it: one unit is wrong, every message is served."""
    flip(directory / queue_file(1), 5 * UNIT_SIZE + byte, 1 << 6)

    assert places(wrong(directory)) == [("damage", "queue-unit", str(queue_file(1)), 25, 26)]
    assert f"{MESSAGES} messages are served" in [
        line["message"] for line in offline.doctor(directory)
    ]


MIDDLE, LAST = str(queue_file(1)), str(queue_file(3))
QUEUE_DAMAGE: dict[str, tuple[Damager, list[tuple[object, ...]]]] = {
    "zeroed": (
        lambda store: overwrite(store / MIDDLE, 2 * UNIT_SIZE, bytes(6 * UNIT_SIZE)),
        [("damage", "queue-unit-missing", MIDDLE, 22, 28)],
    ),
    "file removed": (
        lambda store: (store / MIDDLE).unlink(),
        [("damage", "queue-file-missing", MIDDLE, 20, 40)],
    ),
    "all files removed": (
        lambda store: [path.unlink() for path in (store / QUEUE).iterdir()],
        [
            ("damage", "queue-file-missing", str(queue_file(n)), 20 * n, 20 * n + 20)
            for n in range(3)
        ],
    ),
    "file cut short": (
        lambda store: cut(store / MIDDLE, 15 * UNIT_SIZE),
        [
            ("warning", "queue-file-length", MIDDLE, None, None),
            ("damage", "queue-unit-missing", MIDDLE, 35, 40),
        ],
    ),
    "more than there is": (
        lambda store: (store / LAST).write_bytes((b"\1" * UNIT_SIZE).ljust(400, b"\0")),
        [("warning", "queue-end", LAST, 60, 61)],
    ),
}


@pytest.mark.parametrize("what", QUEUE_DAMAGE)
def test_what_a_queue_lacks_is_named(directory: Path, what: str) -> None:
    damage, expected = QUEUE_DAMAGE[what]
    damage(directory)

    assert places(wrong(directory)) == expected


@pytest.mark.parametrize("position", [WRITER_SLOT_POSITIONS[0], INDEXER_SLOT_POSITIONS[0]])
def test_a_damaged_slot_of_the_checkpoint_is_named(directory: Path, position: int) -> None:
    was_written = any((directory / "checkpoint").read_bytes()[position : position + 100])
    flip(directory / "checkpoint", position + 30)

    [found] = [each for each in places(wrong(directory)) if each[1] == "checkpoint-slot"]

    assert was_written
    assert found == ("damage", "checkpoint-slot", "checkpoint", position, position + 512)


@pytest.mark.parametrize("table", ["topics.json", "consumerOffset.json"])
def test_a_table_without_a_whole_copy_needs_a_backup(directory: Path, table: str) -> None:
    with StoreReader.open(directory) as reader:
        reader.commit_offset("g", "t", 0, 7)
        reader.consumer_offsets.save()
    for copy in (directory / "config").glob(f"{table}*"):
        cut(copy, 9)

    [found] = [line for line in wrong(directory) if line["kind"] == "table-lost"]

    assert (found["severity"], found["file"]) == ("damage", f"config/{table}")
    assert found["command"] == "restore config/ from a backup"


def test_units_that_the_next_start_writes_name_it(directory: Path) -> None:
    before, killed = directory.with_name("before"), directory.with_name("killed")
    shutil.copytree(directory, before)
    with MessageStore.open(directory, replace(CONFIG, queue_flush_interval_ms=3_600_000)) as store:
        put(store, 5)
        assert store.max_offset("t", 0) == MESSAGES + 5
        shutil.copytree(directory, killed)
    shutil.rmtree(killed / QUEUE)
    shutil.copytree(before / QUEUE, killed / QUEUE)

    found = [line for line in wrong(killed) if line["kind"].startswith("queue-")]

    assert {line["severity"] for line in found} == {"warning"}
    assert {line["command"] for line in found} == {f"penstock serve --store {killed}"}


def test_the_last_log_files_are_missed(directory: Path) -> None:
    files = sorted((directory / "commitlog").iterdir())
    last = max(path for path in files if any(path.read_bytes()))
    for path in files:
        if path >= last:  # and those that were made ahead
            path.unlink()

    missing = [each for each in places(wrong(directory)) if each[1] == "log-file-missing"]

    [(severity, _, file, begin, end)] = missing
    assert (severity, file, begin) == ("damage", f"commitlog/{last.name}", int(last.name))
    assert isinstance(end, int) and end > int(last.name)


def test_what_is_wrong_says_what_it_costs_and_what_repairs_it(directory: Path) -> None:
    flip(directory / queue_file(1), 0, 1 << 6)
    flip(next((directory / "commitlog").iterdir()), 100)

    found = wrong(directory)

    assert {line["kind"] for line in found} == {"queue-unit", "log-record", "queue-record"}
    for line in found:
        assert line["cost"] and line["command"]
    assert all(str(directory) in line["command"] for line in found if "penstock" in line["command"])


def test_the_manual_has_a_row_for_each_kind() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for kind in KINDS:
        matching = [row for row in rows if row.startswith(f"| `{kind.name}` |")]
        assert len(matching) == (1 if kind.cost else 0), kind.name
        assert not matching or kind.cost.replace("|", "") in matching[0], kind.name


def test_a_running_store_is_sound_while_messages_come(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        put(store, MESSAGES)
        ending = threading.Event()

        def produce() -> None:
            while not ending.is_set():
                put(store, 5)

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            found = [wrong(tmp_path) for _ in range(4)]
        finally:
            ending.set()
            producer.join()

    assert found == [[]] * 4


def test_damage_under_a_running_store_is_named(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        put(store, MESSAGES)
        assert store.max_offset("t", 0) == MESSAGES
        flip(tmp_path / queue_file(1), 5 * UNIT_SIZE + 3, 1 << 2)

        assert places(wrong(tmp_path)) == [("damage", "queue-unit", str(queue_file(1)), 25, 26)]


def test_a_checkpoint_of_zeros_is_named(directory: Path) -> None:
    (directory / "checkpoint").write_bytes(bytes(4096))

    [found] = [line for line in wrong(directory) if line["kind"] == "checkpoint"]

    assert (found["severity"], found["file"]) == ("damage", "checkpoint")
    with MessageStore.open(directory, CONFIG) as store:
        assert store.max_offset("t", 0) == MESSAGES
    assert wrong(directory) == []
