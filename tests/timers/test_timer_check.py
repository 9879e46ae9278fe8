"""What a start makes of ``config/timercheck``, in which a broker says how far it is, and nothing proves it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from engine_store import note_as_a_broker_does
from flips import wrong
from hand_store import NOW_MS, TimerStore

from storage.format.timer_files import CHECK

NAME = "config/timercheck"
STOPPED_MS = NOW_MS + 5_000
BODIES = [b"%d" % number for number in range(6)]


@pytest.fixture(name="stopped", scope="module")
def _stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was stopped in order, with two messages delivered and four pending."""
    directory = tmp_path_factory.mktemp("check") / "store"
    store = TimerStore(directory)
    for number, body in enumerate(BODIES):
        store.put(body, delay_ms=2_000 * (number + 1), queue_id=0)
    store.pass_to(STOPPED_MS)
    assert store.bodies() == BODIES[:2]
    store.close()
    assert named(directory) == []
    return directory


def named(directory: Path) -> list[str]:
    return [line["file"] for line in wrong(directory)]


def delivered(directory: Path, now_ms: int = STOPPED_MS) -> Counter[bytes]:
    """Start it, and let the time of all messages pass."""
    store = TimerStore(directory, now_ms=now_ms)
    store.settle()
    store.pass_to(NOW_MS + 30_000)
    bodies = Counter(store.bodies())
    store.close()
    return bodies


def changed(stopped: Path, directory: Path, check: bytes) -> Path:
    shutil.copytree(stopped, directory)
    (directory / NAME).write_bytes(check)
    return directory


def test_a_broker_that_is_ahead_of_the_clock_is_not_believed(
    stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is one whose file is no check."""
    read_ms, *others = CHECK.unpack_from((stopped / NAME).read_bytes())
    later = CHECK.pack(read_ms + 10_000_000_000_000, *others)
    for number, content in enumerate((later, b"short")):
        caplog.clear()
        directory = changed(stopped, tmp_path / str(number), content)
        note_as_a_broker_does(directory)
        assert delivered(directory) == Counter(BODIES)
        assert NAME in caplog.text


def test_what_a_broker_wrote_counts(stopped: Path, tmp_path: Path) -> None:
    """It delivered, or dropped, what was due before the second that it says."""
    read_ms, position, offset, _, state, _, counter = CHECK.unpack_from(
        (stopped / NAME).read_bytes()
    )
    read_ms += 4_000
    fields = read_ms, position, offset, offset, state, read_ms + 7, counter + 4
    check = CHECK.pack(*fields).ljust(4_096, b"\0")
    directory = changed(stopped, tmp_path / "copy", check)
    note_as_a_broker_does(directory)
    assert named(directory) == []
    bodies = delivered(directory, read_ms + 500)
    assert sum(bodies.values()) == 4  # without the two of the seconds that it has read
