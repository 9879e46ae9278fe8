"""Units of a queue that are damaged while the log is whole: nothing is lost, and nothing else is served."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from unit_damage import (
    CONFIG,
    COUNT,
    TAGS,
    Whole,
    expected,
    flip,
    make_cut,
    make_whole,
    queue_files,
    random_damages,
    tag_of,
)

from storage import Message, MessageStore
from storage.format.consume_entry import UNIT_SIZE
from storage.format.record import decode_record
from storage.reader import StoreReader
from storage.view.log.commit_log import LogSpan
from storage.view.queues.pulled_records import PulledRecords, Rows


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
            result = reader.pull(
                "t", 1, queue_offset=at, max_messages=max_messages, tag_expression=tag
            )
            assert not result.damaged
            offsets = iter(result.queue_offsets)
            for part in result.slices:
                position = 0
                while position < len(part):
                    record = decode_record(part, position)
                    position += record.total_size
                    found[next(offsets)] = bytes(record.body)
            assert result.next_offset > at
            at = result.next_offset
    return found


def test_a_flipped_high_bit_hides_nothing_after_it(store: Path, whole: Whole) -> None:
    flip(store, 100, 1)
    assert served(store) == expected(whole)


def test_tags_that_differ_by_one_bit_are_told_apart_without_a_check_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG) as writer:
        writer.create_topic("t", 1)
        writer.put_all([Message(topic="t", body=b"%d" % n, tag=f"t{n % 2}") for n in range(200)])
    taken: list[int] = []
    take = PulledRecords.take

    def counted(self: PulledRecords, chosen: Rows, beside: LogSpan | None = None) -> int:
        taken.append(len(chosen))
        return take(self, chosen, beside)

    monkeypatch.setattr(PulledRecords, "take", counted)
    with StoreReader.open(tmp_path / "s") as reader:
        result = reader.pull("t", 0, queue_offset=1, max_messages=32, tag_expression="t0")
    assert (result.record_count, result.next_offset, taken) == (32, 65, [32])


def test_what_is_stored_after_a_flipped_bit_is_seen(store: Path, whole: Whole) -> None:
    flip(store, 950, 1)
    with MessageStore.open(store, CONFIG) as writer:
        assert writer.put(Message(topic="t", queue_id=1, body=b"next")).queue_offset == COUNT
        assert writer.writer.wait_dispatched(writer.writer.appended_offset, 30)
        assert served(store) == {**expected(whole), COUNT: b"next"}


@pytest.mark.parametrize("queue_offset", [0, 1, 299, 300, 500, 998, 999])
def test_any_flipped_bit_of_a_unit_costs_nothing(
    store: Path, whole: Whole, queue_offset: int
) -> None:
    for bit in range(queue_offset % 9, 8 * UNIT_SIZE, 9 if queue_offset != 500 else 1):
        flip(store, queue_offset, bit)
        assert served(store, max_messages=COUNT) == expected(whole), bit
        flip(store, queue_offset, bit)


def test_no_flipped_bit_makes_the_first_record_that_is_left_one_that_was_removed(
    tmp_path: Path,
) -> None:
    store = tmp_path / "s"
    left = make_cut(store)
    assert served(store) == left
    for queue_offset in (1, 2, 3):
        for bit in range(64):  # of its commit offset
            flip(store, queue_offset, bit)
            assert served(store) == left, (queue_offset, bit)
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


@pytest.mark.parametrize("lost", [(0,), (3,), (2, 3), (0, 3), (0, 1, 2, 3)], ids=str)
def test_lost_files_of_a_queue_hide_nothing_from_a_reader_alone(
    store: Path, whole: Whole, lost: tuple[int, ...]
) -> None:
    paths = queue_files(store)
    for number in lost:
        paths[number].unlink()
    assert served(store) == expected(whole)
    assert served(store, "paid") == expected(whole, "paid")


@pytest.mark.parametrize("size", [0, 7 * UNIT_SIZE + 3, 90 * UNIT_SIZE])
@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "zeroed"])
def test_the_newest_units_that_are_lost_hide_nothing_from_a_reader_alone(
    store: Path, whole: Whole, size: int, is_cut: bool
) -> None:
    path = queue_files(store)[-1]
    data = path.read_bytes()
    path.write_bytes(data[:size] if is_cut else data[:size].ljust(len(data), b"\0"))
    assert served(store) == expected(whole)


def test_a_reader_follows_a_writer_that_makes_lost_units_again(store: Path, whole: Whole) -> None:
    queue_files(store)[-1].unlink()
    with StoreReader.open(store) as reader:
        assert reader.max_offset("t", 1) == COUNT
        with MessageStore.open(store, CONFIG) as writer:
            writer.put(Message(topic="t", queue_id=1, body=b"next"))
            assert writer.max_offset("t", 1) == reader.max_offset("t", 1) == COUNT + 1


@pytest.mark.parametrize("tag", ["paid", "Tag0"])
def test_a_flipped_bit_of_a_tag_code_hides_no_message_from_a_filter(
    store: Path, whole: Whole, tag: str
) -> None:
    queue_offset = next(n for n in range(500, COUNT) if tag_of(n) == tag)
    for bit in range(96, 8 * UNIT_SIZE):
        flip(store, queue_offset, bit)
        assert served(store, tag) == expected(whole, tag), bit
        flip(store, queue_offset, bit)


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_costs_nothing_once_a_writer_has_started(
    whole: Whole, tmp_path: Path, seed: int
) -> None:
    for number, damage in enumerate(random_damages(seed, 8)):
        store = tmp_path / str(number)
        shutil.copytree(whole.directory, store)
        what = damage(store)
        with MessageStore.open(store, CONFIG) as writer:
            assert served(store, max_messages=COUNT) == expected(whole), what
            for tag in TAGS:
                assert served(store, tag, COUNT) == expected(whole, tag), what
            stored = writer.put(Message(topic="t", queue_id=1, body=b"next"))
            assert stored.queue_offset == COUNT, what
        shutil.rmtree(store)
