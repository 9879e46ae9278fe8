"""Units of a queue that are damaged while the log is whole: nothing is lost, and nothing else is served."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from engine_store import bodies_in, pull_rebuilt
from steps_to_try import cases_to_try
from unit_damage import (
    CONFIG,
    COUNT,
    Whole,
    expected,
    flip,
    make_whole,
    queue_files,
)

from storage import Message, MessageStore
from storage.format.consume_entry import UNIT_SIZE
from storage.reader import StoreReader


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return make_whole(tmp_path_factory.mktemp("units") / "whole")


@pytest.fixture
def store(whole: Whole, tmp_path: Path) -> Path:
    shutil.copytree(whole.directory, tmp_path / "s")
    return tmp_path / "s"


def served(store: Path, tag: str = "", max_messages: int = 97) -> dict[int, bytes]:
    """What a reader serves of the queue by offset; asserts that it calls nothing damaged."""
    found: dict[int, bytes] = {}
    with StoreReader.open(store) as reader:
        at, end = reader.min_offset("t", 1), reader.max_offset("t", 1)
        while at < end:
            result = pull_rebuilt(
                reader, "t", 1, queue_offset=at, max_messages=max_messages, tag_expression=tag
            )
            assert not result.damaged
            found |= dict(zip(result.queue_offsets, bodies_in(result.slices), strict=True))
            assert result.next_offset > at
            at = result.next_offset
    return found


@pytest.mark.parametrize("queue_offset", cases_to_try([0, 299, 998, 1, 300, 500], 3))
def test_any_flipped_bit_of_a_unit_costs_nothing(
    store: Path, whole: Whole, queue_offset: int
) -> None:
    for bit in range(queue_offset % 9, 8 * UNIT_SIZE, 9 if queue_offset != 500 else 1):
        flip(store, queue_offset, bit)
        assert served(store, max_messages=COUNT) == expected(whole), bit
        flip(store, queue_offset, bit)


def test_a_flipped_bit_behind_the_last_unit_adds_nothing(store: Path, whole: Whole) -> None:
    for bit in range(8 * UNIT_SIZE):
        flip(store, COUNT, bit)
        with StoreReader.open(store) as reader:
            assert reader.max_offset("t", 1) == COUNT, bit
        flip(store, COUNT, bit)
    flip(store, COUNT, 8 * 8 + 24)
    with MessageStore.open(store, CONFIG) as writer:
        assert writer.put(Message(topic="t", queue_id=1, body=b"next")).queue_offset == COUNT
    assert served(store) == {**expected(whole), COUNT: b"next"}


def test_a_lost_file_between_others_hides_nothing_from_a_reader_alone(
    store: Path, whole: Whole
) -> None:
    queue_files(store)[1].unlink()
    assert served(store) == expected(whole)
    assert served(store, "paid") == expected(whole, "paid")
