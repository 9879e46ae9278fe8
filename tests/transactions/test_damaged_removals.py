"""An op record that cannot be read is named, and costs no message: none is lost, and none comes twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from flips import flip, flipped
from hand_store import HALF, OP, HandStore, message


def open_with_damage(store: HandStore, commit_offset: int) -> None:
    """Open the store again; one record is damaged, and no start has noted that it was read."""
    store.workers.settle()
    store.close()
    path = store.directory / "commitlog" / f"{0:020d}"
    flip(path, commit_offset + 88)
    for table in (store.directory / "config").iterdir():
        if table.name.startswith("consumerOffset.json"):
            table.unlink()
    shutil.rmtree(store.directory / "journal")
    store.open()


def stored_count(store: HandStore) -> int:
    """Return how many messages consumers have been shown."""
    store.workers.settle()
    _, ranges = store.writer.describe_topic("orders")
    return sum(end for _, end in ranges)


@pytest.mark.parametrize("sent_later", [0, 40])
def test_a_transaction_that_was_committed_is_not_committed_again(
    store: HandStore, caplog: pytest.LogCaptureFixture, sent_later: int
) -> None:
    store.prepare(message(b"one", "A"), message(b"two", "B", queue_id=1), transaction_id="T")
    store.end("T", commit=True)
    (removal,) = store.records(OP)
    for number in range(sent_later):
        store.prepare(message(b"later", f"K{number}"))
        store.end(f"K{number}", commit=True)
    open_with_damage(store, removal.commit_offset)
    assert store.pending() == []
    assert stored_count(store) == 2 + sent_later
    assert store.end("T", commit=False) == [("committed", 2, True)]
    said = f"op record at queue offset 0, commit offset {removal.commit_offset}, cannot be read"
    assert said in caplog.text
    store.reopen()
    assert store.pending() == []
    assert stored_count(store) == 2 + sent_later


def test_one_that_was_rolled_back_is_asked_about_again(store: HandStore) -> None:
    store.prepare(message(b"one", "A"), message(b"two", "B"))
    store.end("A", commit=False)
    open_with_damage(store, store.records(OP)[0].commit_offset)
    assert store.pending() == ["A", "B"]
    store.watch("orders")
    store.check(6_000)
    assert [each.transaction_id for each in store.asked] == ["A", "B"]
    assert store.end("A", commit=False) == [("rolled back", 1, False)]
    assert stored_count(store) == 0


def test_a_half_of_several_that_is_damaged_keeps_its_transaction_from_being_committed(
    store: HandStore, caplog: pytest.LogCaptureFixture
) -> None:
    """While the writer runs: a backup of the file mends it. A start goes on without it, and names it."""
    names = ("one", "two", "three")
    store.prepare(*(message(name.encode(), name) for name in names), transaction_id="T")
    store.workers.settle()
    first, half, _ = store.records(HALF)
    store.flip(half.commit_offset + 90)
    assert store.end("T", commit=True) == [("damaged", 3, False)]
    store.workers.settle()
    assert store.transactions.needed_offset() == first.commit_offset
    store.reopen()
    assert (
        f"commit offset {half.commit_offset}, cannot be read: the body does not match"
        in caplog.text
    )
    assert store.end("T", commit=True) == [("committed", 2, False)]
    store.flip(half.commit_offset + 90)
    assert store.bodies() == [b"one", b"three"]


STRIDE = 131  # of the bits that are flipped, each of which takes a start


Damages = Callable[[bytes], list[bytes | None]]


DAMAGES: dict[str, Damages] = {
    "cut": lambda data: [data[: len(data) // 2]],
    "emptied": lambda _: [b""],
    "zeroed": lambda data: [bytes(len(data))],
    "removed": lambda _: [None],
    "flipped": lambda data: list(islice(flipped(data.rstrip(b"\0")), 0, None, STRIDE)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_loses_no_transaction(tmp_path: Path, damage: str) -> None:
    whole = tmp_path / "whole"
    store = HandStore(whole)
    store.prepare(*(message(name.encode(), name) for name in "ABCD"))
    store.end("A", "C", commit=True)
    store.close()
    paths = [*whole.glob("config/consumerOffset.json*"), *whole.glob("journal/*")]
    assert len(paths) > 2
    for path in paths:
        for number, data in enumerate(DAMAGES[damage](path.read_bytes())):
            copy = tmp_path / f"{path.name} {number}"
            shutil.copytree(whole, copy)
            place = copy / path.relative_to(whole)
            place.unlink() if data is None else place.write_bytes(data)
            store = HandStore(copy)
            assert store.pending() == ["B", "D"], place
            again = [("committed", 1, True), ("committed", 1, False)]
            assert store.end("A", "B", commit=True) == again, place
            assert store.bodies() == [b"A", b"C", b"B"], place
            store.close()
            shutil.rmtree(copy)
