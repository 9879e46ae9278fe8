"""What is intact in a log and what is damaged: the engine's walk and the pieces of a plan say the same.

Whatever the pieces are cut to, the records are those of one walk through the whole log, and so are the
damaged ranges. Where whole files are gone, a piece says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore
from storage.format.record_layout import MAGIC_BLANK
from storage.view.log.walk import DamagedRange, RecordRun, walk_log, walk_range
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

FILE_SIZE = 1 << 16
Ranges = list[tuple[int, int]]
SIZES = (3_000, 20_000, 1 << 30)


def by_the_engine(view: StoreView) -> tuple[list[int], Ranges]:
    records: list[int] = []
    damage: Ranges = []
    for step in walk_log(view.log, view.bounds.min_offset, view.bounds.end_offset):
        if isinstance(step, RecordRun):
            records += (step.data_offset + step.rows[:, 0]).tolist()
        elif isinstance(step, DamagedRange):
            damage.append((step.begin_offset, step.end_offset))
    return records, damage


def by_pieces(view: StoreView, piece_bytes: int) -> tuple[list[int], Ranges]:
    plan = StorePlan(view)
    records: list[int] = []
    damage: Ranges = []
    for piece in plan.log_pieces(*plan.bounds[:2], piece_bytes, None, with_lost=True):
        if piece.is_lost:
            damage.append((piece.begin, piece.end))
            continue
        for step in walk_range(piece.data(), piece.file_start, piece.begin, piece.end):
            if isinstance(step, RecordRun):
                records += (step.data_offset + step.rows[:, 0]).tolist()
            else:
                damage.append((step.begin_offset, step.end_offset))
    return records, sorted(damage)


def merged(ranges: Ranges) -> Ranges:
    found: Ranges = []
    for begin, end in ranges:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of five log files with records of 200 bytes to 4 KiB."""
    path = tmp_path_factory.mktemp("walks") / "whole"
    rng = random.Random(9)
    config = small_config(flush_mode="sync", commit_log_file_size=FILE_SIZE)
    with MessageStore.open(path, config) as store:
        store.create_topic("t", 2)
        for number in range(200):
            body = rng.randbytes(rng.randrange(100, 4_000))
            store.put(Message(topic="t", queue_id=number % 2, body=body, keys=(f"k{number}",)))
    return path


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def record_in(store: Path, file: int, number: int) -> int:
    """Position in its file of one record."""
    start = int(log_files(store)[file].name)
    records = [at for at in by_the_engine(StoreView(store))[0] if start <= at < start + FILE_SIZE]
    return records[number] - start


def blank_that_leads(store: Path, beyond: int) -> None:
    """Put a blank where a record is, that leads so many bytes beyond the end of its file."""
    at = record_in(store, 1, 5)
    blank = (FILE_SIZE - at + beyond).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
    overwrite(log_files(store)[1], at, blank)


def at_both_ends(store: Path) -> None:
    """Damage the first and the last record of a file."""
    for number in (0, -1):
        flip(log_files(store)[1], record_in(store, 1, number) + 60)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda store: None,
    "a flipped bit in a body": lambda store: flip(
        log_files(store)[1], record_in(store, 1, 4) + 120
    ),
    "a flipped bit in a size": lambda store: flip(log_files(store)[1], record_in(store, 1, 4) + 2),
    "both ends of a file": at_both_ends,
    "zeros over records": lambda store: overwrite(log_files(store)[1], 9_000, bytes(9_000)),
    "zeros over a file": lambda store: overwrite(log_files(store)[2], 0, bytes(FILE_SIZE)),
    "a blank that leads beyond its file": lambda store: blank_that_leads(store, 1_000),
    "a blank that ends before its file": lambda store: blank_that_leads(store, -1_000),
    "a lost file": lambda store: log_files(store)[2].unlink(),
    "two lost files": lambda store: [log_files(store)[2].unlink() for _ in range(2)],
    "a file that is too long": lambda store: overwrite(log_files(store)[1], FILE_SIZE, b"x" * 999),
}


@pytest.mark.parametrize("piece_bytes", SIZES)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_pieces_and_engine_agree_on_a_damaged_store(
    whole: Path, tmp_path: Path, damage: Callable[[Path], object], piece_bytes: int
) -> None:
    import shutil

    store = tmp_path / "store"
    shutil.copytree(whole, store)
    damage(store)
    records, damaged = by_the_engine(StoreView.open(store))
    found, holes = by_pieces(StoreView.open(store), piece_bytes)

    assert found == records and len(records) > 50
    assert merged(holes) == merged(damaged)
    assert damaged or damage in (DAMAGES["nothing"], DAMAGES["a file that is too long"])
