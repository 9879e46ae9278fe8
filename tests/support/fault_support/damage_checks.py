"""Damage of stopped stores that must cost no more than what it hit: each check raises FaultFound where it does.

Each takes a directory for its stores. What a check asks is the name of its function.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fault_ledger import FaultFound, require
from fault_life import LOG_FILE_SIZE, FaultLife
from flip_bed import FlipBed
from lease_store import GROUP, TOPIC, LeaseStore, put

from storage.errors import StoreError
from storage.format.consume_entry import UNIT_SIZE
from storage.format.journal import HEAD, blocks_in
from storage.format.receipt_handle import HANDLE_SIZE
from storage.reader import StoreReader

SIZE_BITS = range(8 * 8, 8 * 12)  # of a unit


def _flips(root: Path, kind: str, count: int, *, start: bool) -> None:
    bed = FlipBed(root, rounds=6)
    for path, bit in bed.random_bits(bed.of_kind(kind), count, seed=3):
        if kind != "queues" or not bed.in_last_unit(path, bit):
            bed.flip(path, bit, start=start)
    require(not bed.tally.failures, bed.tally.failures[:1])


def no_flip_of_a_queue_hides_a_record(root: Path) -> None:
    _flips(root, "queues", 12, start=False)


def no_flip_of_the_index_hides_a_key(root: Path) -> None:
    """Once the scrub has come by."""
    _flips(root, "index", 12, start=True)


def no_flip_of_a_groups_offsets_moves_it(root: Path) -> None:
    """The lowest bit of each first digit."""
    bed = FlipBed(root, rounds=6)
    (path,) = (each for each in bed.of_kind("tables") if each.name == "consumerOffset.json")
    for found in re.finditer(rb":(\d)", bed.files[path]):
        bed.flip(path, 8 * found.start(1), start=False)
    require(not bed.tally.failures, bed.tally.failures[:1])


def no_flip_of_a_record_is_served(root: Path) -> None:
    """By a pull, and by its commit offset."""
    bed = FlipBed(root, rounds=3)
    for entry in list(bed.ledger.entries.values())[::7]:
        path = bed.directory / "commitlog" / f"{0:020d}"
        bit = 8 * (entry.commit_offset + len(entry.data) // 2)
        bed.flip(path, bit, start=False)
        changed = bytearray(bed.files[path])
        changed[bit // 8] ^= 1
        path.write_bytes(changed)
        try:
            with StoreReader.open(bed.directory) as reader:
                reader.message(entry.commit_offset)
        except StoreError:
            continue
        finally:
            path.write_bytes(bed.files[path])
        raise FaultFound(f"a record with a flipped bit is served at {entry.commit_offset}")
    require(not bed.tally.failures, bed.tally.failures[:1])


def no_flip_of_a_size_adds_a_unit(root: Path) -> None:
    """The size in the empty unit after a queue's last one."""
    bed = FlipBed(root, rounds=3)
    for path in bed.of_kind("queues"):
        data = bed.files[path]
        end = -(-len(data.rstrip(b"\0")) // UNIT_SIZE) * UNIT_SIZE
        if bed.in_last_unit(path, 8 * (end - 1)) and end < len(data):
            for bit in SIZE_BITS:
                bed.flip(path, 8 * end + bit, start=False)
    require(not bed.tally.failures, bed.tally.failures[:1])


def a_lost_end_of_the_log_gives_no_offset_twice(root: Path) -> None:
    """The files that the last records are in were removed while the store was stopped."""
    life = FaultLife(root)
    life.create()
    life.put(8, size=LOG_FILE_SIZE // 3)
    life.store.close()
    entries = sorted(life.ledger.entries.values(), key=lambda entry: entry.commit_offset)
    lost_from = entries[-1].commit_offset // LOG_FILE_SIZE * LOG_FILE_SIZE
    directory = life.directory / "commitlog"
    for path in directory.iterdir():
        if int(path.name) >= lost_from:
            path.unlink()
    life.disk.trust(directory)
    life.kill()
    life.open()
    life.put(1)  # the ledger takes no queue offset twice
    lost = {entry.place for entry in entries if entry.commit_offset >= lost_from}
    verdict = life.verdict()
    require(verdict.damaged | verdict.lost == lost, f"{verdict}, {len(lost)} are gone")
    require(not verdict.lost and not verdict.is_wrong, verdict)


def no_flip_of_a_lease_journal_is_believed(root: Path) -> None:
    """One bit of each word of the newest blocks: what comes out of it was true at one time."""
    put(root / "store", 12)
    store = LeaseStore(root / "store")
    handles = store.receive(10).receipt_handles
    true = {(0, 0), (0, 10)}
    for number in range(4):
        store.acknowledge(handles[number * HANDLE_SIZE :][:HANDLE_SIZE])
        true.add((number + 1, 10))
    store.kill()
    (path,) = (store.directory / "leases").iterdir()
    whole = path.read_bytes()
    *_, before, last = [0, *(block.end for block in blocks_in(memoryview(whole)))]
    try:
        for position in range(before + HEAD.size, last, 8):
            data = bytearray(whole)
            data[position] ^= 16
            path.write_bytes(data)
            (queue,) = store.leases.progress(GROUP, TOPIC)
            found = (queue.group_offset, queue.next_offset)
            require(found in true, f"byte {position}: {found}")
            store.kill()
            for left in path.parent.iterdir():
                left.unlink()
            path.write_bytes(whole)
    finally:
        store.leases.close()
        store.reader.close()
        shutil.rmtree(root)
