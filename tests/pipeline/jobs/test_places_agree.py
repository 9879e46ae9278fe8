"""A flipped bit in what says where a record belongs: recovery and rebuild make the same queues of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from engine_store import small_config
from local_spark import LocalSpark

from pipeline import rebuild
from storage import Message, MessageStore
from storage.format.record_layout import QUEUE_ID_POSITION, QUEUE_OFFSET_POSITION
from storage.view.queues.units import as_units

FILE_SIZE = 1 << 12
CONFIG = small_config(
    commit_log_file_size=FILE_SIZE, consume_queue_file_size=200, append_property_crc=False
)
COUNT = 96
TOPICS = ("ordera", "orderc")  # one bit apart
BODY_POSITION = 88
TOPIC_POSITION = 95  # of bodies of 6 bytes
FLIPS = {
    "a queue that there is": (QUEUE_ID_POSITION + 3, 1),
    "a queue that there is not": (QUEUE_ID_POSITION + 3, 2),
    "a queue that cannot be": (QUEUE_ID_POSITION, 0x80),
    "a topic that there is": (TOPIC_POSITION + 5, 2),
    "a topic that there is not": (TOPIC_POSITION, 1),
    "the offset beside": (QUEUE_OFFSET_POSITION + 7, 1),
    "an offset a little away": (QUEUE_OFFSET_POSITION + 7, 8),
    "an offset far ahead": (QUEUE_OFFSET_POSITION, 0x40),
    "an offset below 0": (QUEUE_OFFSET_POSITION, 0x80),
}
Place = tuple[str, int, int]
Units = dict[Place, tuple[int, int, int]]


class Stored(NamedTuple):
    """A store of four queues that are written to in turn, where its records are, and its units."""

    directory: Path
    places: list[Place]
    commit_offsets: list[int]
    units: Units


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    directory = tmp_path_factory.mktemp("stored")
    places, commit_offsets = [], []
    with MessageStore.open(directory, CONFIG) as store:
        for topic in TOPICS:
            store.create_topic(topic, 2)
        for number in range(COUNT):
            message = Message(
                topic=TOPICS[number // 2 % 2], body=b"%06d" % number, queue_id=number % 2
            )
            result = store.put(message)
            places.append((message.topic, result.queue_id, result.queue_offset))
            commit_offsets.append(result.commit_offset)
    (directory / "checkpoint").unlink()
    return Stored(directory, places, commit_offsets, units_of(directory))


def files_of(directory: Path) -> dict[str, bytes]:
    """The queue files that hold anything."""
    root = directory / "consumequeue"
    found = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if any(data)}


def units_of(directory: Path) -> Units:
    found: Units = {}
    for name, data in files_of(directory).items():
        topic, queue_id, file = name.split("/")
        units = as_units(data)
        for at in np.flatnonzero(units["size"]).tolist():
            found[topic, int(queue_id), int(file) // 20 + at] = tuple(units[at].tolist())
    return found


def made_again(stored: Stored, tmp_path: Path, victim: int, flip: str, *, lost: bool) -> Units:
    """Flip a bit; return the units that recovery makes, which must be those of a rebuild."""
    recovered, rebuilt = tmp_path / "recovered", tmp_path / "rebuilt"
    shutil.copytree(stored.directory, recovered)
    if lost:
        shutil.rmtree(recovered / "consumequeue")
    position, bit = FLIPS[flip]
    commit_offset = stored.commit_offsets[victim]
    start = commit_offset - commit_offset % FILE_SIZE
    log = recovered / "commitlog" / f"{start:020d}"
    data = bytearray(log.read_bytes())
    data[commit_offset - start + position] ^= bit
    log.write_bytes(data)
    shutil.copytree(recovered, rebuilt)

    MessageStore.open(recovered, CONFIG).close()
    rebuild(LocalSpark(), rebuilt, what="queues", in_place=True, piece_bytes=1000)  # type: ignore[arg-type]
    assert files_of(rebuilt) == files_of(recovered)
    return units_of(recovered)


@pytest.mark.parametrize("flip", FLIPS)
@pytest.mark.parametrize("victim", [0, 30, 45, COUNT - 4, COUNT - 1])
def test_with_the_queues_as_they_were_only_the_record_itself_is_concerned(
    stored: Stored, tmp_path: Path, victim: int, flip: str
) -> None:
    """No other record moves, no queue offset is given out again; a wrong offset costs nothing."""
    found = made_again(stored, tmp_path, victim, flip, lost=False)
    if "offset" not in flip:
        found[stored.places[victim]] = stored.units[stored.places[victim]]  # or a damaged one
    assert found == stored.units


@pytest.mark.parametrize("flip", FLIPS)
@pytest.mark.parametrize("victim", [0, 30, 45])
def test_from_the_log_alone_at_most_the_place_that_it_takes_is_concerned(
    stored: Stored, tmp_path: Path, victim: int, flip: str
) -> None:
    """Two records claim one place; nothing says which of them has it from a flipped bit."""
    found = made_again(stored, tmp_path, victim, flip, lost=True)
    offset = stored.commit_offsets[victim]
    differing = {
        place
        for place in stored.units
        if found.get(place) != stored.units[place] and place != stored.places[victim]
    }
    assert len(differing) <= ("offset" not in flip)
    assert all(found[place][0] == offset for place in differing)
    assert {place for place in found if place[:2] in {p[:2] for p in stored.units}} >= set(
        stored.units
    ) - {stored.places[victim]}


@pytest.mark.parametrize("lost", [False, True], ids=["queues as they were", "queues lost"])
@pytest.mark.parametrize("flip", FLIPS)
def test_the_last_record_has_nothing_after_it_that_would_tell(
    stored: Stored, tmp_path: Path, flip: str, lost: bool
) -> None:
    """Every record but it stands where it stood, whether its queue's old unit is there or not."""
    found = made_again(stored, tmp_path, COUNT - 1, flip, lost=lost)
    others = set(stored.units) - {stored.places[-1]}
    assert {place: found[place] for place in others} == {
        place: stored.units[place] for place in others
    }


def last_two_damaged(stored: Stored, store: Path) -> list[Place]:
    return flip_bodies(stored, store, range(COUNT - 2, COUNT))


def all_but_the_last_damaged_of_some_queues(stored: Stored, store: Path) -> list[Place]:
    last = stored.places[-1][:2]
    return flip_bodies(stored, store, [n for n in range(20, COUNT) if stored.places[n][:2] != last])


def flip_bodies(stored: Stored, store: Path, numbers: Iterable[int]) -> list[Place]:
    """Damage records; return the places of those with an intact one after them."""
    intact_to = max(set(range(COUNT)) - set(numbers))
    for number in numbers:
        offset = stored.commit_offsets[number]
        log = store / "commitlog" / f"{offset - offset % FILE_SIZE:020d}"
        data = bytearray(log.read_bytes())
        data[offset % FILE_SIZE + BODY_POSITION] ^= 1
        log.write_bytes(data)
    return [stored.places[number] for number in numbers if number < intact_to]


def last_file_removed(stored: Stored, store: Path) -> list[Place]:
    last = stored.commit_offsets[-1] - stored.commit_offsets[-1] % FILE_SIZE
    for path in (store / "commitlog").iterdir():
        if int(path.name) >= last:
            path.unlink()
    return [
        place
        for place, offset in zip(stored.places, stored.commit_offsets, strict=True)
        if offset >= last
    ]


def middle_file_removed(stored: Stored, store: Path) -> list[Place]:
    (store / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    return [
        place
        for place, offset in zip(stored.places, stored.commit_offsets, strict=True)
        if offset // FILE_SIZE == 1
    ]


@pytest.mark.parametrize(
    "harm",
    [
        last_two_damaged, all_but_the_last_damaged_of_some_queues, last_file_removed,
        middle_file_removed,
    ],
)  # fmt: skip
def test_lost_records_keep_their_places_by_both_ways(
    stored: Stored, tmp_path: Path, harm: Callable[[Stored, Path], list[Place]]
) -> None:
    """Wherever the log goes on after them, in their own queue or another, or is known to have gone on."""
    recovered, rebuilt = tmp_path / "recovered", tmp_path / "rebuilt"
    shutil.copytree(stored.directory, recovered)
    kept = harm(stored, recovered)
    shutil.copytree(recovered, rebuilt)

    MessageStore.open(recovered, CONFIG).close()
    rebuild(LocalSpark(), rebuilt, what="queues", in_place=True, piece_bytes=1000)  # type: ignore[arg-type]
    assert files_of(rebuilt) == files_of(recovered)
    found = units_of(recovered)
    assert {place: found.get(place) for place in kept} == {
        place: stored.units[place] for place in kept
    }
    assert set(found) <= set(stored.units)


def test_one_new_record_of_a_topic_made_again_is_the_first_by_both_ways(tmp_path: Path) -> None:
    """Its deletion is not known any more; its unit at queue offset 0 still shows it."""
    recovered, rebuilt = tmp_path / "recovered", tmp_path / "rebuilt"
    with MessageStore.open(recovered, CONFIG) as store:
        store.create_topic("again", 1)
        for _ in range(5):
            store.put(Message(topic="again", body=b"old"))
        store.delete_topic("again")
        store.create_topic("again", 1)
        result = store.put(Message(topic="again", body=b"new"))
    for name in ("checkpoint", "config/penstock.json"):
        (recovered / name).unlink()
    shutil.copytree(recovered, rebuilt)

    MessageStore.open(recovered, CONFIG).close()
    rebuild(LocalSpark(), rebuilt, what="queues", in_place=True, piece_bytes=1000)  # type: ignore[arg-type]
    assert {place: unit[0] for place, unit in units_of(recovered).items()} == {
        ("again", 0, 0): result.commit_offset
    }
    assert files_of(rebuilt) == files_of(recovered)
