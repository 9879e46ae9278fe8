"""A store of one queue among records of others, its units, and ways to damage them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

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

Damaging = Callable[[Path], str]
"""Damages a store and says how."""


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


def change(store: Path, queue_offset: int, position: int, new: Callable[[bytes], bytes]) -> None:
    """Change bytes of a queue file from a position of a unit on."""
    path = queue_files(store)[queue_offset // UNITS_OF_A_FILE]
    at = queue_offset % UNITS_OF_A_FILE * UNIT_SIZE + position
    data = bytearray(path.read_bytes())
    changed = new(bytes(data[at:]))
    data[at : at + len(changed)] = changed
    path.write_bytes(data)


def flip(store: Path, queue_offset: int, bit: int) -> None:
    """Flip one of a unit's 160 bits; 0 is the highest of the commit offset."""
    change(
        store, queue_offset, bit // 8, lambda rest: bytes([rest[0] ^ (0x80 >> bit % 8)])
    )  # fmt: skip


def random_damages(seed: int, count: int) -> list[Damaging]:
    """Flips of any bit of any unit, zeroed sectors and pages, files that are cut, zeroed or gone."""
    rng = random.Random(seed)
    files = COUNT // UNITS_OF_A_FILE  # but for the last one

    def flipped() -> Damaging:
        queue_offset, bit = rng.randrange(COUNT), rng.randrange(8 * UNIT_SIZE)

        def damage(store: Path) -> str:
            flip(store, queue_offset, bit)
            return f"bit {bit} of unit {queue_offset}"

        return damage

    def zeroed() -> Damaging:
        number, length = rng.randrange(files + 1), rng.choice((512, 4096))
        at = rng.randrange(0, UNITS_OF_A_FILE * UNIT_SIZE, 512)

        def damage(store: Path) -> str:
            path = queue_files(store)[number]
            data = bytearray(path.read_bytes())
            end = min(at + length, len(data))
            data[at:end] = bytes(end - at)
            path.write_bytes(data)
            return f"zeros in [{at}, {end}) of file {number}"

        return damage

    def cut() -> Damaging:
        number, size = rng.randrange(files + 1), rng.randrange(UNITS_OF_A_FILE * UNIT_SIZE)

        def damage(store: Path) -> str:
            path = queue_files(store)[number]
            path.write_bytes(path.read_bytes()[:size])
            return f"file {number} cut to {size} bytes"

        return damage

    def emptied() -> Damaging:
        number, is_gone = rng.randrange(files + 1), rng.random() < 0.5

        def damage(store: Path) -> str:
            path = queue_files(store)[number]
            if is_gone:
                path.unlink()
                return f"file {number} is gone"
            path.write_bytes(bytes(UNITS_OF_A_FILE * UNIT_SIZE))
            return f"file {number} is zeros"

        return damage

    kinds = (flipped, flipped, flipped, zeroed, cut, emptied)
    return [rng.choice(kinds)() for _ in range(count)]
