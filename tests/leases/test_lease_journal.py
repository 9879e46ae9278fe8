"""The journal of leases: what damage of it costs, what a broker's run changes, full and failing disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from flips import flip
from lease_store import GROUP, TOPIC, LeaseStore, bodies, put
from steps_to_try import steps_to_try

from storage.errors import StoreFailed, StoreFull, UnsupportedFormat
from storage.files.filesystem import FileSystem
from storage.format.config_json import decode_config, encode_config
from storage.format.journal import blocks_in, encode_block
from storage.format.lease_journal import HEAD, HEAD_PAYLOAD, VERSION
from storage.leases.upkeep import LeaseUpkeep
from storage.leases.values import HandleProblem
from storage.offline.checks.leases import lease_journal
from storage.testing import SimulatedDisk, SteppedWorkers
from storage.view.layout import StorePaths

HANDLE = 40


@pytest.fixture
def store(tmp_path: Path) -> LeaseStore:
    put(tmp_path / "store", 40)
    return LeaseStore(tmp_path / "store")


def journal_of(store: LeaseStore) -> Path:
    (path,) = (store.directory / "leases").iterdir()
    return path


def found(store: LeaseStore) -> list[str]:
    paths = StorePaths(store.directory)
    return [each.message for each in lease_journal(FileSystem(), paths)]


def stop(store: LeaseStore) -> None:
    store.leases.close()
    store.reader.close()


def test_a_damaged_end_costs_what_came_after_it(store: LeaseStore) -> None:
    batch = store.receive(20)
    store.acknowledge(batch.receipt_handles[: 5 * HANDLE])
    size = store.leases._journal.size
    store.acknowledge(batch.receipt_handles[5 * HANDLE : 10 * HANDLE])
    store.kill()
    flip(journal_of(store), size + 30)
    assert len(found(store)) == 1
    assert "not whole blocks" in found(store)[0]

    (queue,) = store.leases.progress(GROUP, TOPIC)

    assert (queue.group_offset, queue.next_offset) == (5, 20)
    stop(store)
    assert found(store) == []


def test_every_flipped_bit_leaves_a_state_that_was_true_once(store: LeaseStore) -> None:
    batch = store.receive(10)
    for number in range(10):
        store.acknowledge(batch.receipt_handles[number * HANDLE :][:HANDLE])
    store.kill()
    path = journal_of(store)
    whole = path.read_bytes()
    end = [block.end for block in blocks_in(memoryview(whole))][-1]
    offsets = set()
    for position in steps_to_try(range(0, end, 7), 9):
        flip(path, position)
        (queue,) = store.leases.progress(GROUP, TOPIC)
        offsets.add((queue.group_offset, queue.next_offset))
        store.kill()
        for left in path.parent.iterdir():
            left.unlink()
        path.write_bytes(whole)
    assert offsets == {(0, 0)} | {(number, 10) for number in range(10)}


def test_without_its_journal_a_group_goes_on_at_its_offset(store: LeaseStore) -> None:
    batch = store.receive(20)
    store.acknowledge(batch.receipt_handles[: 5 * HANDLE] + batch.receipt_handles[-HANDLE:])
    stop(store)
    flip(journal_of(store), 0)
    assert found(store) == ["cannot be read: it does not begin with its version"]
    store.clock.pass_ms(1)
    store.open()

    again = store.receive(40)

    assert bodies(again) == list(range(5, 40))
    assert store.acknowledge(batch.receipt_handles[5 * HANDLE : 6 * HANDLE]) == [
        (0, HandleProblem.EXPIRED)
    ]


def damage_version(path: Path) -> None:
    flip(path, 30)


def damage_end(path: Path) -> None:
    flip(path, [block.end for block in blocks_in(memoryview(path.read_bytes()))][-1] - 1)


def cut_end(path: Path) -> None:
    os.truncate(path, [block.end for block in blocks_in(memoryview(path.read_bytes()))][-1] - 8)


def damage_first_events(path: Path) -> None:
    flip(path, [block.end for block in blocks_in(memoryview(path.read_bytes()))][1] + 30)


def write_unknown_block(path: Path) -> None:
    *_, last = enumerate(blocks_in(memoryview(path.read_bytes())), 1)
    count, (_, _, end, crc) = last
    with path.open("r+b") as file:
        file.seek(end)
        file.write(encode_block(77, count, b"", crc)[0])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_version, "it does not begin with its version"),
        (lambda path: os.truncate(path, 0), "it is empty"),
        (Path.unlink, "no journal is there: groups go on at their offsets"),
        (damage_end, "bytes that are not whole blocks"),
        (cut_end, "bytes that are not whole blocks"),
        (damage_first_events, "bytes that are not whole blocks"),
        (write_unknown_block, "is not understood: a block of kind 77"),
    ],
    ids=["version", "empty", "gone", "last block", "cut", "block between", "unknown"],
)
def test_each_damage_of_the_journal_is_found_and_costs_no_message(
    store: LeaseStore, caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None], message: str,
) -> None:  # fmt: skip
    """Doctor's words for it are those that the next start logs; after that start nothing is wrong."""
    batch = store.receive(10)
    store.acknowledge(batch.receipt_handles[: 5 * HANDLE])
    stop(store)
    assert found(store) == []
    damage(journal_of(store))
    (problem,) = found(store)
    assert message in problem

    store.open()
    store.clock.pass_ms(10 * 60_000)
    again = store.receive(40)
    stop(store)

    assert set(range(5, 40)) <= set(bodies(again))
    assert problem in caplog.text
    assert found(store) == []


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_journal_of_another_version_is_refused_by_name(store: LeaseStore, version: int) -> None:
    (store.directory / "leases").mkdir()
    payload = HEAD_PAYLOAD.pack(version)
    (store.directory / "leases" / f"{1:020d}").write_bytes(encode_block(HEAD, 0, payload, 0)[0])

    with pytest.raises(UnsupportedFormat, match=f"version {version} of the journal of leases"):
        store.receive(1)
    stop(store)
    assert [f"version {version}" in each for each in found(store)] == [True]


def broker_sets(store: LeaseStore, offset: int) -> None:
    """Let a broker run on the store, whose group is at an offset after it."""
    path = store.directory / "config" / "consumerOffset.json"
    document = decode_config(path.read_bytes())
    document["offsetTable"][f"{TOPIC}@{GROUP.name}"] = {0: offset}
    path.rename(path.with_name(path.name + ".bak"))
    path.write_bytes(encode_config(document))


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(15, list(range(15, 20))), (30, list(range(30, 40))), (5, list(range(5, 40)))],
    ids=["in what was handed out", "after it", "set back"],
)
def test_what_a_broker_has_set_since_counts(
    store: LeaseStore, offset: int, expected: list[int]
) -> None:
    batch = store.receive(20)
    store.acknowledge(batch.receipt_handles[: 10 * HANDLE])
    stop(store)
    broker_sets(store, offset)
    store.open()
    store.clock.pass_ms(60_000)

    assert bodies(store.receive(40))[: len(expected)] == expected


def test_a_full_disk_hands_out_nothing_and_forgets_nothing(tmp_path: Path) -> None:
    put(tmp_path / "disk" / "store", 40)
    disk = SimulatedDisk(tmp_path / "disk")
    store = LeaseStore(tmp_path / "disk" / "store", filesystem=disk)
    batch = store.receive(5)
    journal = store.leases._journal
    journal._reserved = journal.size  # what was reserved ahead is used up
    disk.fault = (errno.ENOSPC, 0)
    disk.faults_left = 1_000

    with pytest.raises(StoreFull):
        store.receive(5)
    with pytest.raises(StoreFull):
        store.acknowledge(batch.receipt_handles)

    disk.fault = None
    assert store.acknowledge(batch.receipt_handles) == []
    assert store.receive(5).attempts.tolist() == [1] * 5
    store.kill()
    (queue,) = store.leases.progress(GROUP, TOPIC)
    assert (queue.group_offset, queue.next_offset) == (5, 10)


def test_a_failed_sync_is_final(tmp_path: Path) -> None:
    put(tmp_path / "disk" / "store", 40)
    disk = SimulatedDisk(tmp_path / "disk")
    store = LeaseStore(tmp_path / "disk" / "store", filesystem=disk)
    store.receive(5)
    disk.fault = (errno.EIO, 0)
    disk.faults_left = 1

    with pytest.raises(StoreFailed):
        store.leases.sync()
    with pytest.raises(StoreFailed):
        store.receive(5)
    assert store.leases.failure is not None


def test_upkeep_saves_offsets_and_a_long_journal_now_and_then(tmp_path: Path) -> None:
    put(tmp_path / "store", 40)
    store = LeaseStore(tmp_path / "store", journal_bytes_max=2_000)
    upkeep = LeaseUpkeep(store.leases, workers=SteppedWorkers(), clock=store.clock)
    upkeep.start()
    for _ in range(10):
        store.acknowledge(store.receive(4).receipt_handles)
    journal = store.leases._journal
    assert journal.synced_size < journal.size
    size = journal.size

    upkeep.step()
    assert journal.synced_size == journal.size
    assert store.reader.committed_offsets(GROUP.name) == {}
    store.clock.pass_ms(5_000)
    upkeep.step()

    assert store.reader.committed_offsets(GROUP.name) == {TOPIC: {0: 40}}
    assert size > 2_000
    assert journal.size < 1_000
    upkeep.stop()
