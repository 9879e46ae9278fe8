"""A store of one queue among records of others, and its units, of which tests flip bits."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import flips
from engine_store import small_config

from storage import Message, MessageStore
from storage.format.consume_entry import UNIT_SIZE

COUNT: Final = 1_000
UNITS_OF_A_FILE: Final = 300
TAGS: Final = ("paid", "open", "Tag0", "Tag1")
CONFIG: Final = small_config(
    flush_mode="sync",
    commit_log_file_size=1 << 16,
    consume_queue_file_size=UNITS_OF_A_FILE * UNIT_SIZE,
)


class Whole(NamedTuple):
    """A store, and the bodies of topic t's queue 1 by queue offset."""

    directory: Path
    bodies: list[bytes]


def tag_of(number: int) -> str:
    return TAGS[(number * 7 + number // 3) % len(TAGS)]


def make_whole(directory: Path) -> Whole:
    """Fill a store and close it."""
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


def expected(whole: Whole, tag: str = "") -> dict[int, bytes]:
    """The bodies by queue offset, those with a tag if one is given."""
    return {n: body for n, body in enumerate(whole.bodies) if not tag or tag_of(n) == tag}


def queue_files(store: Path) -> list[Path]:
    return sorted((store / "consumequeue/t/1").iterdir())


def flip(store: Path, queue_offset: int, bit: int) -> None:
    """Flip one of a unit's 160 bits; 0 is the highest of the commit offset."""
    path = queue_files(store)[queue_offset // UNITS_OF_A_FILE]
    at = queue_offset % UNITS_OF_A_FILE * UNIT_SIZE + bit // 8
    flips.flip(path, at, 0x80 >> bit % 8)
