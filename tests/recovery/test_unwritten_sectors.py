"""Sectors of the log that a power cut left unwritten: the end in sync mode, damage otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import MappedFileQueue
from storage.view.log.walk import DamagedRange, End, walk_log

FILE_SIZE = 1 << 16
COUNT = 40


@pytest.fixture
def log(tmp_path: Path) -> tuple[MappedFileQueue, list[int]]:
    """A log of one file, and where its records begin."""
    with MessageStore.open(tmp_path, small_config(commit_log_file_size=FILE_SIZE)) as store:
        store.create_topic("t", 1)
        offsets = [
            store.put(Message(topic="t", body=b"x" * 100)).commit_offset for _ in range(COUNT)
        ]
    files = MappedFileQueue(FileSystem(), tmp_path / "commitlog", file_size=FILE_SIZE)
    return files, offsets


def walked(files: MappedFileQueue, promised_offset: int | None) -> tuple[list[int], int]:
    """Return where damaged ranges begin, and the end."""
    steps = list(walk_log(files, 0, files.end_offset, promised_offset=promised_offset))
    damaged = [step.begin_offset for step in steps if isinstance(step, DamagedRange)]
    end = steps[-1]
    assert isinstance(end, End)
    return damaged, end.commit_offset


def unwritten(files: MappedFileQueue, offsets: list[int]) -> int:
    """Zero the third sector; return where the first record begins that it takes a part of."""
    file = files.find(0)
    assert file is not None
    file.array[1024:1536] = 0
    return max(offset for offset in offsets if offset <= 1024)


def test_a_sector_that_was_never_written_ends_what_was_not_promised(
    log: tuple[MappedFileQueue, list[int]],
) -> None:
    """Below what was promised, or where more than what was synced may have been, it is damage."""
    files, offsets = log
    _, end_offset = walked(files, None)
    broken = unwritten(files, offsets)
    for promised_offset in (None, broken + 1):
        assert walked(files, promised_offset) == ([broken], end_offset)
    for promised_offset in (0, broken):
        assert walked(files, promised_offset) == ([], broken)


def test_a_sector_that_ends_with_the_zeros_of_a_length_was_not_written_either(
    tmp_path: Path,
) -> None:
    """The record after the one that is gone begins two bytes before the next sector, and is intact all the same."""
    with MessageStore.open(tmp_path, small_config(commit_log_file_size=FILE_SIZE)) as store:
        store.create_topic("t", 1)
        offsets = [
            store.put(Message(topic="t", body=b"x" * size, unique_key="k")).commit_offset
            for size in (379, 377, 1)
        ]
    assert offsets == [0, 512, 1022]
    files = MappedFileQueue(FileSystem(), tmp_path / "commitlog", file_size=FILE_SIZE)
    file = files.find(0)
    assert file is not None
    file.array[512:1024] = 0
    assert walked(files, None)[0] == [512]
    assert walked(files, 512) == ([], 512)


def test_a_flipped_bit_is_damage_wherever_it_is(log: tuple[MappedFileQueue, list[int]]) -> None:
    files, offsets = log
    _, end_offset = walked(files, None)
    file = files.find(0)
    assert file is not None
    file.array[offsets[20] + 95] ^= 1
    assert walked(files, 0) == ([offsets[20]], end_offset)
