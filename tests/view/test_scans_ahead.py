"""A log that threads scan ahead is what one scan after the other finds, damage and all."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest
from steps_to_try import cases_to_try

from storage import MessageStore, StoreConfig
from storage.files.filesystem import OsFileSystem
from storage.format.property_crc import CRC_MASK
from storage.kernels.columns import BODY_LENGTH, BODY_POSITION, COMMIT_OFFSET, POSITION, SIZE
from storage.message import Message
from storage.view.log.files import ListedLog
from storage.view.log.scans_ahead import ScansAhead
from storage.view.log.walk import DamagedRange, End, RecordRun, walk_log

CONFIG = StoreConfig(
    commit_log_file_size=1 << 18, consume_queue_file_size=4000, index_slot_count=7,
    index_entry_count=500, append_property_crc=False,
)  # fmt: skip
COUNT = 600
Walked = tuple[list[list[int]], list[DamagedRange], End]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    dice = random.Random(5)
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 2)
        for _ in range(COUNT):
            store.put(Message(topic="t", body=dice.randbytes(dice.choice((10, 900, 9_000)))))
    return tmp_path / "commitlog"


def walked(directory: Path, ahead: ScansAhead | None = None) -> Walked:
    log = ListedLog(OsFileSystem(), directory)
    rows: list[list[int]] = []
    damage: list[DamagedRange] = []
    for step in walk_log(log, 0, log.end_offset, ahead=ahead):
        if isinstance(step, RecordRun):
            rows += step.rows.tolist()
        elif isinstance(step, DamagedRange):
            damage.append(step)
        else:
            return rows, damage, step
    raise AssertionError("a walk ends with its end")


def flip(directory: Path, commit_offset: int, *, size: int = 1) -> None:
    path = directory / f"{commit_offset >> 18 << 18:020d}"
    with path.open("r+b") as file:
        file.seek(commit_offset % (1 << 18))
        old = file.read(size)
        file.seek(commit_offset % (1 << 18))
        file.write(bytes(byte ^ 0x55 for byte in old))


@pytest.mark.parametrize("rows_max", cases_to_try([7, 1000, 2, 64], 2))
@pytest.mark.parametrize("threads", cases_to_try([3, 1]))
@pytest.mark.parametrize("damaged", [0, 1, 40])
def test_it_finds_what_one_scan_after_the_other_finds(
    directory: Path, rows_max: int, threads: int, damaged: int
) -> None:
    whole = walked(directory)
    assert len(whole[0]) == COUNT
    dice = random.Random(damaged)
    for row in dice.sample(whole[0], damaged):
        flip(directory, row[COMMIT_OFFSET] + dice.randrange(row[SIZE]))
    expected = walked(directory)
    assert bool(expected[1]) == bool(damaged)
    with ScansAhead(rows_max, threads=threads, run_bytes=20_000) as ahead:
        assert walked(directory, ahead) == expected
        assert walked(directory, ahead) == expected  # another walk


def test_a_record_in_the_body_of_another_one_never_counts(tmp_path: Path) -> None:
    """Every guess meets a record that stands whole at its own commit offset, and is in a body."""
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        for number in range(8):
            store.put(Message(topic="t", body=bytes([number]) * 20_000))
    with MessageStore.open(tmp_path / "other", CONFIG) as store:
        store.create_topic("t", 1)
        store.put(Message(topic="t", body=b"inside"))
    directory = tmp_path / "commitlog"
    path = directory / f"{0:020d}"
    inner = (tmp_path / "other" / "commitlog" / path.name).read_bytes()
    inner = inner[: int.from_bytes(inner[:4], "big")]
    data = bytearray(path.read_bytes())
    for row in walked(directory)[0]:
        position, begin = row[POSITION], row[BODY_POSITION]
        end = begin + row[BODY_LENGTH]
        for at in range(begin, end - len(inner), len(inner)):
            data[at : at + len(inner)] = inner[:28] + at.to_bytes(8, "big") + inner[36:]
        crc = zlib.crc32(data[begin:end]) & CRC_MASK
        data[position + 8 : position + 12] = crc.to_bytes(4, "big")
    path.write_bytes(data)
    expected = walked(directory)
    assert (len(expected[0]), expected[1]) == (8, [])
    with ScansAhead(64, run_bytes=15_000) as ahead:
        assert walked(directory, ahead) == expected
        assert ahead._doubted >= (0, 0), "no guess was wrong"
