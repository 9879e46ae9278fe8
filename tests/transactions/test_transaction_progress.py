"""From where on a start reads: kept for us and for a broker, and never further than what is stored."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from engine_store import note_as_a_broker_does, small_config
from hand_store import HALF, OP, HandStore, message

from storage.clock import SystemClock
from storage.errors import InvalidMessage
from storage.files.filesystem import FileSystem
from storage.journal.states import read_states
from storage.leases.leases import Leases
from storage.reader import StoreReader
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.groups import GroupConfig
from storage.transactions import recovery
from storage.transactions.progress import STATE, TransactionProgress

GROUP = "CID_RMQ_SYS_TRANS"


def kept(store: HandStore) -> TransactionProgress:
    states = read_states(FileSystem(), store.directory / "journal")
    return TransactionProgress(**states.document(STATE))


def of_a_broker(store: HandStore) -> dict[str, dict[int, int]]:
    offsets = ConsumerOffsets(FileSystem(), store.directory / "config", SystemClock())
    return offsets.fetch_group(GROUP)


def fill(store: HandStore, names: str) -> None:
    store.prepare(*(message(name.encode(), name) for name in names))


def test_a_stop_keeps_how_far_transactions_are(
    store: HandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, "ABCD")
    store.end("A", "B", "D", commit=True)
    store.reopen()
    assert kept(store).half_offset == 2
    store.end("C", commit=False)
    store.workers.settle()
    store.reopen()
    assert kept(store)[:2] == (4, 2)
    assert of_a_broker(store) == {HALF: {0: 4}, OP: {0: 2}}
    read: list[int] = []
    halves = recovery.read_halves

    def noted_halves(engine: Any, begin: int, **others: Any) -> Any:
        if "only" not in others:  # those are of transactions that ended last
            read.append(begin)
        return halves(engine, begin, **others)

    removals = recovery.read_removals

    def noted_removals(engine: Any, begin: int) -> Any:
        read.append(begin)
        return removals(engine, begin)

    monkeypatch.setattr(recovery, "read_halves", noted_halves)
    monkeypatch.setattr(recovery, "read_removals", noted_removals)
    fill(store, "E")
    store.reopen()
    assert sorted(read) == [2, 4]
    assert store.pending() == ["E"]


def commit_as_its_group(store: HandStore, queue_offset: int) -> None:
    offsets = ConsumerOffsets(FileSystem(), store.directory / "config", SystemClock())
    offsets.commit(GROUP, HALF, 0, queue_offset)
    offsets.close()


def test_a_brokers_word_counts_where_a_broker_ran(store: HandStore) -> None:
    """It passes over halves that it gives up, without an op record. Who else writes there knows nothing of them."""
    fill(store, "AB")
    store.close()
    commit_as_its_group(store, 1)
    store.open()
    assert store.pending() == ["A", "B"]
    store.close()
    commit_as_its_group(store, 1)
    note_as_a_broker_does(store.directory)
    store.open()
    assert store.pending() == ["B"]
    store.kill()  # at once: it is kept
    assert store.pending() == ["B"]


def test_nobody_commits_as_a_group_of_the_stores_own(store: HandStore) -> None:
    fill(store, "A")
    store.workers.settle()
    with StoreReader.open(store.directory, small_config()) as reader:
        with pytest.raises(InvalidMessage, match="store's own"):
            reader.commit_offset(GROUP, HALF, 0, 1)
        leases = Leases(reader)
        with pytest.raises(InvalidMessage, match="store's own"):
            leases.receive(GroupConfig(name=GROUP), HALF)
        leases.close()
    assert of_a_broker(store) == {}


def test_progress_beyond_the_end_of_the_log_does_not_hide_what_is_stored_next(
    store: HandStore, tmp_path: Path
) -> None:
    """A power cut took the halves that it counted; others get their queue offsets."""
    fill(store, "A")
    store.end("A", commit=False)
    first = store.records(OP)[-1]
    fill(store, "BCD")
    store.end("B", "C", "D", commit=False)
    store.reopen()
    assert kept(store).half_offset == 4
    store.close()
    for path in (store.directory / "config").glob("consumerOffset.json*"):
        path.unlink()
    (store.directory / "checkpoint").unlink()
    shutil.rmtree(store.directory / "consumequeue")
    store.end_log_at(first.commit_offset + first.total_size)
    store.open()
    fill(store, "EFG")
    store.kill()
    assert store.pending() == ["E", "F", "G"]


def test_the_topics_of_half_messages_cannot_be_deleted(store: HandStore) -> None:
    fill(store, "A")
    for topic in (HALF, OP):
        with pytest.raises(InvalidMessage, match="pending"):
            store.writer.delete_topic(topic)
    assert store.end("A", commit=True) == [("committed", 1, False)]
