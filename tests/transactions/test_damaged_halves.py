"""A half message that is damaged is named, and its transaction is never committed without it."""

from __future__ import annotations

import pytest
from transaction_store import HALF, TransactionStore, message

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.mark.parametrize("running", [True, False])
def test_a_half_of_several_that_is_damaged_keeps_its_transaction_from_being_committed(
    store: TransactionStore, caplog: pytest.LogCaptureFixture, running: bool
) -> None:
    """Whether the writer runs meanwhile or not; a backup of the file mends it."""
    names = ("one", "two", "three")
    store.prepare(*(message(name.encode(), name) for name in names), transaction_id="T")
    store.workers.settle()
    first, half, _ = store.records(HALF)
    if not running:
        store.writer.close()
    store.flip(half.commit_offset + 90)
    if not running:
        store.open()
    assert store.end("T", commit=True) == [("damaged", 3, False)]
    said = f"commit offset {half.commit_offset}, cannot be read: the body does not match its CRC; "
    assert running or f"{said}transaction T cannot be committed" in caplog.text
    store.workers.settle()
    assert store.transactions._transactions.needed_offset() == first.commit_offset
    store.writer.close()
    store.flip(half.commit_offset + 90)
    store.open()
    assert store.end("T", commit=True) == [("committed", 3, False)]
    assert store.bodies() == [name.encode() for name in names]


def test_a_half_that_was_damaged_while_nobody_ran_is_given_up_when_it_is_too_old(
    store: TransactionStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.prepare(message(b"one", "A"), message(b"two", "B"), transaction_id="T")
    half = store.records(HALF)[0]
    store.writer.close()
    store.flip(half.commit_offset + 90)
    store.open()
    store.clock.pass_ms(73 * 3_600_000)
    for _ in range(20):
        store.check(30_000)
    assert store.pending() == []
    assert "of transaction T is lost" in caplog.text
    store.workers.settle()
    assert store.transactions._transactions.needed_offset() is None
    assert store.transactions._transactions.progress.now().half_offset == 2
    store.flip(half.commit_offset + 90)
    assert store.bodies(GIVEN_UP) == [b"two"]
