"""Commits that a stop cut short are completed as soon as they can be, whatever becomes of their topics and halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_store import leave_as_a_broker_does, note_as_a_broker_does
from full_filesystem import full
from hand_store import HALF, HandStore, message

from storage.transactions.half_records import committed_copies
from storage.transactions.log_access import TransactionLog


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[HandStore]:
    """A store that is closed, and has the first of three copies of a commit; the last is for another topic."""
    store = HandStore(tmp_path / "store")
    store.writer.create_topic("bills", 1)
    store.prepare(
        message(b"one", "A"), message(b"two", "B", queue_id=1),
        message(b"three", "C", topic="bills"), transaction_id="T",
    )  # fmt: skip
    store.end("T", commit=True)
    (_, second) = store.records("orders")
    store.cut_off(second.commit_offset)
    yield store
    store.close()


@pytest.mark.parametrize("leave", [leave_as_a_broker_does, note_as_a_broker_does])
@pytest.mark.parametrize("killed", [False, True])
def test_a_copy_whose_op_record_a_broker_has_not_written_does_not_come_again(
    tmp_path: Path, leave: Callable[[Path], None], killed: bool
) -> None:
    """It gathers op records for 3 s, and an orderly stop drops those that it has."""
    store = HandStore(tmp_path / "store")
    store.prepare(message(b"pay", "K"), message(b"other", "O"))
    transactions = store.transactions
    (half,) = transactions.table.of("K")
    record, _ = transactions.log.read(half.commit_offset)
    assert record is not None
    transactions.log.append(committed_copies([record], [(half.topic, half.queue_id)]), 1)
    store.close()
    leave(store.directory)
    if killed:
        (store.directory / "abort").touch()
    store.open()
    assert store.pending() == ["O"]
    assert store.end("K", commit=False) == [("committed", 1, True)]
    assert store.bodies() == [b"pay"]
    store.close()


def test_it_ends_without_the_messages_of_a_topic_that_is_deleted(
    cut: HandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TransactionLog, "append", full)
        cut.open()
    cut.writer.delete_topic("bills")
    cut.check()
    assert cut.pending() == []
    assert cut.bodies() == [b"one", b"two"]
    cut.reopen()
    assert cut.pending() == []
    assert cut.end("T", commit=False)[0][0] == "committed"


def test_one_with_a_damaged_half_is_said_once_and_tried_again_later(
    cut: HandStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TransactionLog, "append", full)
        cut.open()
    half = cut.records(HALF)[1]
    cut.flip(half.commit_offset + 90)
    cut.watch("orders")
    for _ in range(20):
        cut.check(500)
    for _ in range(3):
        cut.check(30_000)
    said = [each.message for each in caplog.records if "transaction T" in each.message]
    assert len(said) == 1
    assert f"the half message at commit offset {half.commit_offset}" in said[0]
    assert cut.writer.status().problem == said[0]
    assert cut.pending() == ["T"]
    assert cut.asked == []
