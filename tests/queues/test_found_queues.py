"""A start that takes all queues together comes to what it comes to one by one, whatever is damaged."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from engine_store import record, small_config
from steps_to_try import steps_to_try

from storage.files.filesystem import OsFileSystem
from storage.format.consume_entry import UNIT_SIZE
from storage.format.record_layout import MAGIC_V1
from storage.queues import found_queues
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.found_end import FEW_BYTES
from storage.queues.found_queues import FoundQueues
from storage.queues.queue_files import OpenQueueFiles
from storage.queues.queue_table import QueueTable
from storage.testing import SteppedClock, SteppedWorkers
from storage.view.log.recovery_cases import Start
from storage.view.queues.queue_files import heads_on_disk
from storage.writer import StoreWriter

UNITS_OF_A_FILE = 700
CONFIG = small_config(
    commit_log_file_size=1 << 18,
    consume_queue_file_size=UNITS_OF_A_FILE * UNIT_SIZE,
    append_property_crc=False,  # so that a flipped bit may leave an intact record of another queue
    warm_ahead_bytes=0,
)
MAGIC = MAGIC_V1.to_bytes(4)
TOPICS = {"t": 12, "u": 2, "wide": 3}
SEEDS = range(60)


def opened(directory: Path) -> StoreWriter:
    return StoreWriter.open(
        directory, CONFIG, clock=SteppedClock(), workers=SteppedWorkers()
    )  # fmt: skip


def killed_store(directory: Path, dice: random.Random) -> None:
    """Leave a store whose checkpoint is behind its queues, and those behind its log."""
    writer = opened(directory / "running")
    engine = writer._engine
    for topic, count in TOPICS.items():
        writer.create_topic(topic, count)

    def put(count: int) -> None:
        for _ in range(count):
            topic = dice.choice(list(TOPICS))
            queue_id = dice.randrange(TOPICS[topic] - (topic == "wide" and dice.random() < 0.9))
            body = dice.randbytes(dice.choice((5, 60)))
            writer.append_batch(record(topic, queue_id, body, property_crc=False))

    if dice.random() < 0.5:  # more than a look at its head shows, and sometimes a second file
        many = b"".join(
            record("u", 1, property_crc=False) for _ in range(dice.choice((500, 690, 750)))
        )
        writer.append_batch(many)
    put(dice.choice((1, 30, 100)))
    engine.settle()
    engine.checkpointer.checkpoint()
    put(dice.choice((0, 10, 80)))
    engine.settle()
    put(dice.choice((0, 0, 5)))
    shutil.copytree(directory / "running", directory / "killed")
    writer.close()


def damage(store: Path, dice: random.Random) -> str:
    """Do something to a queue file, or to the log."""
    kind = dice.choice(("unit", "unit", "zeros", "end", "cut", "gone", "log", "log", "none"))
    files = sorted((store / "consumequeue").glob("*/*/*"))
    if not files:
        return "nothing is left"
    path = dice.choice(files)
    if kind == "log":
        path = store / "commitlog" / f"{0:020d}"
    if kind == "none":
        return kind
    if kind == "gone":
        path.unlink()
        return f"{path.relative_to(store)} is gone"
    data = bytearray(path.read_bytes())
    written = len(data.rstrip(b"\0")) or 1
    if kind == "cut":
        data = data[: dice.choice((written // 2, written, written + 100))]
    elif kind == "zeros":
        at = dice.randrange(written)
        data[at : at + 40] = bytes(len(data[at : at + 40]))
    elif kind == "end":
        at = -(-written // UNIT_SIZE) * UNIT_SIZE
        if at < len(data):
            data[at : at + UNIT_SIZE] = data[dice.choice((0, at - UNIT_SIZE)) :][:UNIT_SIZE]
    else:
        data[dice.randrange(written)] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return f"{kind} in {path.relative_to(store)}"


def damage_records(store: Path, dice: random.Random) -> str:
    """Flip low bits of the queue id or the queue offset of a record, which no checksum covers."""
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    starts, at = [], 0
    while data[at + 4 : at + 8] == MAGIC:
        starts.append(at)
        at += int.from_bytes(data[at : at + 4])
    if not starts:
        return "no record"
    start = dice.choice(starts[-40:])
    field = dice.choice((15, 27))
    data[start + field] ^= 1 << dice.randrange(4)
    path.write_bytes(data)
    return f"byte {field} of the record at {start}"


def left(directory: Path) -> dict[str, Any]:
    """Recover a store, and return what came of it."""
    writer = opened(directory)
    recovered = writer.recovered
    ranges = {topic.name: writer.describe_topic(topic.name) for topic in writer.list_topics()}
    engine = writer._engine
    durable = engine.positions.durable.load()
    assert (durable.dispatched_offset, durable.unit_count) == recovered.durable_units
    assert durable.flushed_offset == recovered.end_offset
    units = engine.queues.count_units(recovered.end_offset).units
    assert units == recovered.unit_count == engine.dispatch.dispatcher.reached[1]
    files = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.glob("consumequeue/*/*/*"))
    }
    engine.checkpointer.checkpoint()  # writes what it doubts again
    for name, data in files.items():
        assert (directory / name).read_bytes() == data
    engine._abandon()
    return {"recovered": recovered, "ranges": ranges, "files": files}


@pytest.mark.parametrize("seed", steps_to_try(SEEDS, 3))
def test_all_together_come_to_what_each_comes_to_alone(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    killed_store(tmp_path, dice)
    done = [damage(tmp_path / "killed", dice) for _ in range(dice.choice((0, 1, 1, 3)))]
    if dice.random() < 0.4:
        done += [damage_records(tmp_path / "killed", dice) for _ in range(dice.choice((1, 2)))]
    shutil.copytree(tmp_path / "killed", tmp_path / "alone")
    together = left(tmp_path / "killed")
    monkeypatch.setattr(FoundQueues, "_start_of", lambda *_: None)
    assert left(tmp_path / "alone") == together, done


def test_most_of_these_stores_are_taken_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = []
    meet = FoundQueues.meet
    monkeypatch.setattr(
        FoundQueues, "meet", lambda self, groups: met.append(left := meet(self, groups)) or left
    )
    for seed in range(4):
        killed_store(tmp_path / str(seed), random.Random(seed))
        recovered = left(tmp_path / str(seed) / "killed")["recovered"]
        assert recovered.start is Start.BOUNDED
    assert met and not any(len(each) > 6 for each in met)


@pytest.mark.parametrize("count", [0, 1, 409, 410, 411, 600, UNITS_OF_A_FILE])
@pytest.mark.parametrize("behind", [0, 1, 5, 300])
def test_a_queue_ends_where_a_search_has_it_end(tmp_path: Path, count: int, behind: int) -> None:
    """Whatever the limit is: from the first record of the file to after its last."""
    file_size = UNITS_OF_A_FILE * UNIT_SIZE
    table = QueueTable(OsFileSystem(), tmp_path, file_size=file_size)
    queue = table.get("t", 7)
    units = b"".join(
        (100 * number).to_bytes(8) + (100).to_bytes(4) + bytes(8) for number in range(count)
    )
    if units:
        queue.append(units)
    table.close()
    limit = max(100 * (count - behind), 0)
    files = OpenQueueFiles(OsFileSystem(), tmp_path, file_size=file_size)
    expected = ConsumeQueue(files, "t", 7).find_end(limit)
    found = FoundQueues(heads_on_disk(OsFileSystem(), tmp_path, FEW_BYTES), limit, file_size)
    end = found.end_of(("t", 7))
    if end is None:  # its end is not near the end of the data: a search, as always
        assert count == 0 or (behind == 300 and count * UNIT_SIZE > FEW_BYTES) or limit == 0
        return
    assert end.end == expected == min(max(count - behind, 0), count)
    assert found.unit_count == expected
    if end.following is not None:
        assert end.following == units[expected * UNIT_SIZE :]
    files.close()


def test_files_of_other_lengths_and_names_are_looked_at_one_by_one(tmp_path: Path) -> None:
    for queue_id, (name, size) in enumerate(
        [(f"{0:020d}", 400), ("0", 400), (f"{0:020d}", 380), (f"{20:020d}", 400), ("x", 400)]
    ):
        path = tmp_path / "t" / str(queue_id) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(size))
    found = FoundQueues(heads_on_disk(OsFileSystem(), tmp_path, FEW_BYTES), 1, 400)
    assert found.others == [("t", number) for number in range(1, 5)]
    assert found.has_place(("t", 0)) and not found.has_place(("t", 1))
    assert not found.has_place(("u", 0)) and not found.has_place(("t", -1))
    assert found_queues.FoundQueues([], 1, 400).unit_count == 0


def test_a_directory_with_another_name_for_a_queue_is_not_counted(tmp_path: Path) -> None:
    """Or no count would agree, and each start would read the whole log."""
    killed_store(tmp_path, random.Random(1))
    for name in ("01", "000", "99999999999"):
        (tmp_path / "killed" / "consumequeue" / "t" / name).mkdir()
    for _ in range(2):
        assert left(tmp_path / "killed")["recovered"].start is Start.BOUNDED
