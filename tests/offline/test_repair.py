"""``doctor --repair``: what is wrong is repaired, what was whole stays, what changes is kept aside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import flips
import pytest
from flips import overwrite
from golden import golden_copy
from recovered_copy import recovered_copy
from steps_to_try import cases_to_try, stops_to_try

from storage import MessageStore, StoreConfig, offline
from storage.clock import SystemClock
from storage.errors import StoreLocked
from storage.files.filesystem import FileSystem
from storage.format.consume_entry import UNIT_SIZE
from storage.message import Message
from storage.offline.repair import plan_repair, repair
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.testing import SimulatedDisk, SteppedClock, SteppedWorkers

pytestmark = pytest.mark.usefixtures("instant_syncs")
CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=400, index_slot_count=7,
    index_entry_count=500,
)  # fmt: skip
MESSAGES = 60
QUEUE = Path("consumequeue/t/0")
Damager = Callable[[Path], object]


def body(number: int) -> bytes:
    return b"%d" % number + bytes(2_500)


def fill(store: MessageStore) -> None:
    store.create_topic("t", 1)
    for number in range(MESSAGES):
        store.put(Message(topic="t", body=body(number), keys=(f"k{number}",)))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        fill(store)
    with closing(
        ConsumerOffsets(FileSystem(), tmp_path / "s" / "config", SystemClock())
    ) as offsets:
        offsets.commit("group", "t", 0, 7)
        offsets.save()
    return tmp_path / "s"


def queue_file(directory: Path, number: int) -> Path:
    return directory / QUEUE / f"{number * 400:020d}"


def end_of_log(directory: Path) -> tuple[Path, int]:
    last = max(path for path in (directory / "commitlog").iterdir() if any(path.read_bytes()))
    return last, len(last.read_bytes().rstrip(b"\0"))


def wrong_units(directory: Path) -> None:
    overwrite(queue_file(directory, 1), 5 * UNIT_SIZE, b"\x40")
    overwrite(queue_file(directory, 0), 0, bytes(3 * UNIT_SIZE))


def lost_queue_files(directory: Path) -> None:
    queue_file(directory, 1).unlink()
    overwrite(queue_file(directory, 2), 100, b"\xff" * 40)


def lost_queues(directory: Path) -> None:
    shutil.rmtree(directory / "consumequeue")


def garbage_after_the_end(directory: Path) -> None:
    last, end = end_of_log(directory)
    overwrite(last, end + 100, b"garbage" * 10)


def foreign_file(directory: Path) -> None:
    (directory / "commitlog" / "notes.txt").write_text("not a log")


def lost_index(directory: Path) -> None:
    for path in (directory / "index").iterdir():
        path.unlink()


def damaged_index(directory: Path) -> None:
    path = min((directory / "index").iterdir())
    overwrite(path, len(path.read_bytes().rstrip(b"\0")) - 300, bytes(200))


def damaged_checkpoint(directory: Path) -> None:
    page = bytearray((directory / "checkpoint").read_bytes())
    for position in (1536, 2048, 2560, 3072):
        page[position + 40] ^= 4
    (directory / "checkpoint").write_bytes(page)


def all_of_it(directory: Path) -> None:
    for damage in (wrong_units, garbage_after_the_end, damaged_index, damaged_checkpoint):
        damage(directory)


REPAIRED: dict[str, Damager] = {
    damage.__name__: damage
    for damage in (
        wrong_units, lost_queue_files, lost_queues, foreign_file, garbage_after_the_end, lost_index, damaged_index,
        damaged_checkpoint, all_of_it,
    )
}  # fmt: skip


def wrong(directory: Path) -> list[tuple[str, str]]:
    return [(line["severity"], line["kind"]) for line in flips.wrong(directory)]


def wait_indexed(store: MessageStore) -> None:
    assert store._indexer is not None
    assert store._indexer.wait_indexed(store.writer.appended_offset, 30)


def contents(directory: Path, *, lost: frozenset[int] = frozenset()) -> None:
    """Check that all messages are served at their offsets, and found by their keys."""
    with MessageStore.open(directory, CONFIG) as store:
        wait_indexed(store)
        for number in set(range(MESSAGES)) - lost:
            pulled = store.pull("t", 0, queue_offset=number, max_messages=1)
            assert body(number) in bytes(pulled.slices[0]), number
            assert store.query_by_key("t", f"k{number}").record_count == 1, number
        assert store.max_offset("t", 0) == MESSAGES


@pytest.mark.parametrize("what", REPAIRED)
def test_a_store_is_whole_after_it_and_a_second_one_finds_nothing(
    directory: Path, what: str
) -> None:
    REPAIRED[what](directory)
    assert wrong(directory)

    report = repair(directory)

    assert report.losses == ()
    assert wrong(directory) == []
    second = repair(directory)
    assert (second.directory, second.kept) == (None, ())
    contents(directory)


@pytest.mark.parametrize("what", ["wrong_units", "all_of_it"])
def test_a_dry_run_says_what_it_would_keep_and_changes_nothing(directory: Path, what: str) -> None:
    REPAIRED[what](directory)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    plan = plan_repair(directory)

    assert any(finding.is_wrong for finding in plan.found)
    assert plan.directory is None
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    assert plan.kept == repair(directory).kept


def test_what_changes_is_kept_aside_as_it_was(directory: Path) -> None:
    all_of_it(directory)
    last, _ = end_of_log(directory)
    was = {
        name: (directory / name).read_bytes()
        for name in (
            "checkpoint", "config/topics.json", str(queue_file(directory, 0).relative_to(directory)),
        )
    }  # fmt: skip

    kept = repair(directory).directory

    assert kept is not None and kept.parent == directory
    assert {name: (kept / name).read_bytes() for name in was} == was
    [tail] = (kept / "commitlog").iterdir()
    assert tail.name.startswith(last.name)
    assert tail.read_bytes().strip(b"\0") == b"garbage" * 10
    assert b"garbage" not in last.read_bytes()
    found = [json.loads(line) for line in (kept / "findings.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in found} >= {"queue-unit", "log-tail", "checkpoint-slot"}


def test_a_damaged_record_is_a_loss_and_no_finding_from_then_on(directory: Path) -> None:
    overwrite(min((directory / "commitlog").iterdir()), 20_000, b"\xff")
    wrong_units(directory)

    report = repair(directory)

    assert {loss.kind.name for loss in report.losses} == {"log-record", "queue-record"}
    assert wrong(directory) == []
    notes = [line for line in offline.doctor(directory) if line["kind"] == "log-record"]
    assert report.directory is not None
    assert notes[0]["severity"] == "note" and report.directory.name in notes[0]["message"]
    lost = {loss.begin for loss in report.losses if loss.kind.name == "queue-record"}
    contents(directory, lost=frozenset(offset for offset in lost if offset is not None))
    overwrite(min((directory / "commitlog").iterdir()), 40_000, b"\xff")
    assert {kind for _, kind in wrong(directory)} == {"log-record", "queue-record"}


def test_a_store_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        fill(store)
        assert store.max_offset("t", 0) == MESSAGES
        wrong_units(tmp_path)
        with pytest.raises(StoreLocked):
            repair(tmp_path)
        assert not [path for path in tmp_path.iterdir() if "repair" in path.name]


@pytest.mark.parametrize(
    "variant",
    cases_to_try(
        [
            "only-commitlog", "torn-consumequeue-unit", "garbage-offsets", "stale-tail", "cut-length",
            "empty-commitlog-file", "flip-last-queue-offset", "future-checkpoint", "no-consumequeue",
            "no-index", "short-commitlog-file", "zeroed-consumequeue-file", "zeroed-tail",
        ],
        4,
    ),
)  # fmt: skip
def test_a_broker_s_store_is_repaired_too(tmp_path: Path, variant: str) -> None:
    store = golden_copy(f"torn/{variant}", tmp_path)
    recovered = recovered_copy(store, tmp_path / "recovered")
    served = [line for line in offline.dump(recovered) if line["type"] == "message"]

    report = repair(store)

    assert report.losses == ()
    assert wrong(store) == []
    assert [line for line in offline.dump(store) if line["type"] == "message"] == served


@pytest.mark.parametrize(("kills", "share"), [(True, 0), (False, 19)])
def test_a_repair_stopped_at_any_step_loses_nothing_and_is_done_by_the_next(
    tmp_path: Path, kills: bool, share: int
) -> None:
    """Killed, or the power cut: what was kept aside is whole or has no name, and no record is lost."""
    config = replace(CONFIG, flush_mode="sync")
    reached = []

    def work(disk: SimulatedDisk) -> object:
        clock = SteppedClock()
        with MessageStore.open(
            disk.root, config, filesystem=disk, clock=clock, workers=SteppedWorkers()
        ) as store:
            store.create_topic("t", 1)
            for number in range(30):
                store.put(Message(topic="t", body=body(number), keys=(f"k{number}",)))
        before = disk.step_count
        index = min((disk.root / "index").iterdir())
        for path, position, data in (
            (disk.root / QUEUE / f"{0:020d}", 5 * UNIT_SIZE, b"\x40"),
            (disk.root / QUEUE / f"{400:020d}", 0, bytes(3 * UNIT_SIZE)),
            (index, len(index.read_bytes().rstrip(b"\0")) - 100, bytes(60)),
            (disk.root / "config" / "topics.json", 20, b"?"),
        ):
            file = disk.open(path, writable=True)
            file.pwrite(data, position)
            file.sync()
            file.close()
        reached.append((before, disk.step_count))
        return repair(disk.root, filesystem=disk, clock=clock, workers=SteppedWorkers)

    checked = 0
    for run in stops_to_try(tmp_path / "runs", work, 40, start=share, kills=kills):
        if not run.was_stopped:
            assert wrong(run.disk.root) == []
            break
        if not reached or run.step <= reached[-1][1]:
            continue
        root = run.disk.root
        for kept in root.glob("repair-*"):
            found = [json.loads(line) for line in (kept / "findings.jsonl").open()]
            kinds = {line["kind"] for line in found}
            assert kinds >= {"queue-unit", "queue-unit-missing", "index-file", "table"}
        repair(root)
        assert wrong(root) == []
        with MessageStore.open(root, config) as store:
            wait_indexed(store)
            for number in range(30):
                pulled = store.pull("t", 0, queue_offset=number, max_messages=1)
                assert body(number) in bytes(pulled.slices[0])
                assert store.query_by_key("t", f"k{number}").record_count == 1
        checked += 1
    assert checked > 4


def test_a_group_that_is_after_its_queue_s_end_is_set_to_it(directory: Path) -> None:
    with closing(ConsumerOffsets(FileSystem(), directory / "config", SystemClock())) as offsets:
        offsets.commit("group", "t", 0, 600)
        offsets.save()
    assert wrong(directory) == [("warning", "group-offset")]

    repair(directory)

    assert wrong(directory) == []
    with closing(ConsumerOffsets(FileSystem(), directory / "config", SystemClock())) as offsets:
        assert offsets.fetch("group", "t", 0) == MESSAGES
