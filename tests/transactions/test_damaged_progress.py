"""Each file that says how far transactions are, damaged while the store is stopped: none is lost, none ends twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from flips import flipped
from transaction_store import TransactionStore, message

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
    store = TransactionStore(whole)
    store.prepare(*(message(name.encode(), name) for name in "ABCD"))
    store.end("A", "C", commit=True)
    store.writer.close()
    paths = [*whole.glob("config/consumerOffset.json*"), *whole.glob("journal/*")]
    assert len(paths) > 2
    for path in paths:
        for number, data in enumerate(DAMAGES[damage](path.read_bytes())):
            copy = tmp_path / f"{path.name} {number}"
            shutil.copytree(whole, copy)
            place = copy / path.relative_to(whole)
            place.unlink() if data is None else place.write_bytes(data)
            store = TransactionStore(copy)
            assert store.pending() == ["B", "D"], place
            again = [("committed", 1, True), ("committed", 1, False)]
            assert store.end("A", "B", commit=True) == again, place
            assert store.bodies() == [b"A", b"C", b"B"], place
            store.writer.close()
            shutil.rmtree(copy)
