"""Which halves have a copy in their queue is found whichever bit of the commit offset in its unit is flipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from flips import flipped
from transaction_store import HALF, TransactionStore, message

from storage.format.consume_entry import UNIT_SIZE
from storage.transactions.reading import copied_halves

COMMIT_OFFSET_BITS = range(32, 64)  # of it the lower half


@pytest.mark.parametrize("following", [0, 2])
def test_a_flipped_bit_hides_no_copy(tmp_path: Path, following: int) -> None:
    store = TransactionStore(tmp_path / "store")
    store.writer.append_batch(b"".join(message(b"before", f"b{each}") for each in range(2)))
    store.prepare(message(b"A", "A"))
    store.end("A", commit=True)
    if following:
        store.writer.append_batch(message(b"after", "a") * following)
    store.workers.settle()
    (half,) = store.records(HALF)
    path = min((store.directory / "consumequeue" / "orders" / "0").iterdir())
    whole = path.read_bytes()
    at = whole.index(store.records("orders")[2].commit_offset.to_bytes(8, "big"))
    assert at == 2 * UNIT_SIZE
    for unit in flipped(whole[at : at + UNIT_SIZE], COMMIT_OFFSET_BITS):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(unit)
        store.reopen()
        found = copied_halves(store.writer._engine, "orders", 0, half.commit_offset)
        assert found.tolist() == [half.commit_offset], unit.hex()
    store.writer.close()
