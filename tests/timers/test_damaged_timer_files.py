"""Each file that says what delayed messages are pending, damaged while the store is stopped: none is lost or comes twice."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hand_store import NOW_MS, TimerStore
from steps_to_try import steps_to_try

pytestmark = pytest.mark.usefixtures("instant_syncs")
STOPPED_MS = NOW_MS + 5_000
FLIPS = steps_to_try(range(6), 6)  # of each file
NAMES = ("timercheck", "delayOffset.json")
BODIES = [*(b"%d" % number for number in range(20)), *(b"level %d" % number for number in range(3))]
Damage = Callable[[bytes], bytes | None]


def flip(seed: int) -> Damage:
    def flipped(data: bytes) -> bytes:
        changed = bytearray(data)
        bit = random.Random(seed).randrange(8 * max(len(data.rstrip(b"\0")), 1))
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    return flipped


DAMAGES: dict[str, Damage] = {
    "cut": lambda data: data[: len(data) // 2],
    "emptied": lambda _: b"",
    "zeroed": lambda data: bytes(len(data)),
    "removed": lambda _: None,
    **{f"flip {seed}": flip(seed) for seed in FLIPS},
}


@pytest.fixture(params=["closed", "killed"])
def stopped(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with messages that were delivered and others that are pending."""
    store = TimerStore(tmp_path / "store")
    for number in range(20):
        store.put(b"%d" % number, delay_ms=1_000 * (number + 1), queue_id=0)
    for number in range(3):
        store.put(b"level %d" % number, delay_level=2, queue_id=0)
    store.pass_to(STOPPED_MS)
    assert len(store.bodies()) == 8
    directory = tmp_path / "stopped"
    if request.param == "closed":
        store.close()
    shutil.copytree(store.directory, directory)
    if request.param == "killed":
        store.close()
    return directory


def files(directory: Path) -> list[Path]:
    """What of a stopped store is about delayed messages, but for their records."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return sorted(
        path
        for path in found
        if path.parent.name in ("timers", "journal") or path.name.startswith(("timer", *NAMES))
    )


@pytest.mark.parametrize("damage", steps_to_try(list(DAMAGES), 2))
def test_what_is_damaged_loses_and_repeats_no_message(
    stopped: Path, tmp_path: Path, damage: str
) -> None:
    wrong = {}
    assert len(files(stopped)) > 4
    for path in files(stopped):
        before = path.read_bytes()
        after = DAMAGES[damage](before)
        if after == before:
            continue
        copy = tmp_path / "copy"
        shutil.copytree(stopped, copy)
        place = copy / path.relative_to(stopped)
        place.unlink() if after is None else place.write_bytes(after)
        store = TimerStore(copy, now_ms=STOPPED_MS)
        store.settle()
        store.pass_to(NOW_MS + 30_000)
        difference = Counter(store.bodies())
        difference.subtract(BODIES)
        if any(difference.values()):
            wrong[place.name] = +difference, -difference
        store.close()
        shutil.rmtree(copy)
    assert not wrong
