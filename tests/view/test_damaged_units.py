"""Units of a queue that are damaged while the log is whole: nothing is lost, and nothing else is served."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from engine_store import small_config

from storage import Message, MessageStore
from storage.format.consume_entry import UNIT_SIZE
from storage.format.record import decode_record
from storage.reader import StoreReader

COUNT: Final = 1_000
UNITS_OF_A_FILE: Final = 300
TAGS: Final = ("paid", "open", "Tag0", "Tag1")
CONFIG: Final = small_config(
    flush_mode="sync",
    commit_log_file_size=1 << 16,
    consume_queue_file_size=UNITS_OF_A_FILE * UNIT_SIZE,
)


def tag_of(number: int) -> str:
    return TAGS[(number * 7 + number // 3) % len(TAGS)]


class Whole(NamedTuple):
    """A store of one queue with what is in it, among records of others."""

    directory: Path
    bodies: list[bytes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    directory = tmp_path_factory.mktemp("units") / "whole"
    bodies = [b"%d " % n * (n * 7 % 9 + 1) for n in range(COUNT)]
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("t", 2)
        store.create_topic("other", 1)
        for begin in range(0, COUNT, 50):
            messages = []
            for n in range(begin, begin + 50):
                messages.append(Message(topic="t", queue_id=1, body=bodies[n], tag=tag_of(n)))
                messages.append(Message(topic="other", queue_id=0, body=b"x" * (n % 5)))
            store.put_all(messages)
    return Whole(directory, bodies)


@pytest.fixture
def store(whole: Whole, tmp_path: Path) -> Path:
    shutil.copytree(whole.directory, tmp_path / "s")
    return tmp_path / "s"


def queue_file(store: Path, queue_offset: int) -> tuple[Path, int]:
    """The file that a unit of the queue is in, and the unit's position in it."""
    start = queue_offset // UNITS_OF_A_FILE * UNITS_OF_A_FILE * UNIT_SIZE
    return store / "consumequeue/t/1" / f"{start:020d}", queue_offset * UNIT_SIZE - start


def flip(store: Path, queue_offset: int, bit: int) -> None:
    """Flip one of a unit's 160 bits; 0 is the highest of the commit offset."""
    path, position = queue_file(store, queue_offset)
    with path.open("r+b") as file:
        file.seek(position + bit // 8)
        old = file.read(1)[0]
        file.seek(position + bit // 8)
        file.write(bytes([old ^ (0x80 >> bit % 8)]))


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


def expected(whole: Whole, tag: str = "") -> dict[int, bytes]:
    return {n: body for n, body in enumerate(whole.bodies) if not tag or tag_of(n) == tag}


def test_a_flipped_high_bit_hides_nothing_after_it(store: Path, whole: Whole) -> None:
    flip(store, 100, 1)
    assert served(store) == expected(whole)


def test_what_is_stored_after_a_flipped_bit_is_seen(store: Path, whole: Whole) -> None:
    flip(store, 950, 1)
    with MessageStore.open(store, CONFIG) as writer:
        assert writer.put(Message(topic="t", queue_id=1, body=b"next")).queue_offset == COUNT
        assert served(store) == {**expected(whole), COUNT: b"next"}


@pytest.mark.parametrize("queue_offset", [0, 1, 299, 300, 500, 998])
def test_any_flipped_bit_of_a_unit_costs_nothing(
    store: Path, whole: Whole, queue_offset: int
) -> None:
    for bit in range(8 * UNIT_SIZE):
        flip(store, queue_offset, bit)
        assert served(store, max_messages=COUNT) == expected(whole), bit
        flip(store, queue_offset, bit)


@pytest.mark.parametrize("tag", TAGS)
def test_a_flipped_bit_of_a_tag_code_hides_no_message_from_a_filter(
    store: Path, whole: Whole, tag: str
) -> None:
    queue_offset = next(n for n in range(500, COUNT) if tag_of(n) == tag)
    for bit in range(96, 8 * UNIT_SIZE):
        flip(store, queue_offset, bit)
        assert served(store, tag) == expected(whole, tag), bit
        flip(store, queue_offset, bit)
