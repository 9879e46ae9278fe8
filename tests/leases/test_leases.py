"""Leases as a consumer sees them: handed out for a time, acknowledged, given back."""

from pathlib import Path

import numpy as np
import pytest
from engine_store import small_config
from lease_store import GROUP, ORDERLY, TOPIC, LeaseStore, bodies, put, put_messages

from storage import Message, MessageStore
from storage.errors import InvalidMessage, StoreLocked
from storage.format.record import decode_record
from storage.leases.values import HandleProblem
from storage.tables.groups import GroupConfig

HANDLE = 40


@pytest.fixture
def store(tmp_path: Path) -> LeaseStore:
    put(tmp_path / "store", 100, queues=4)
    return LeaseStore(tmp_path / "store")


def bodies_at(data: np.ndarray, positions: np.ndarray) -> list[bytes]:
    """Return the bodies of the records at positions."""
    return [bytes(decode_record(data.data, int(position)).body) for position in positions]


def test_forged_and_foreign_handles_are_refused(store: LeaseStore) -> None:
    handle = store.receive(1).receipt_handles
    store.receive(100, GroupConfig(name="others"))

    assert store.leases.acknowledge("others", TOPIC, handle) == [(0, HandleProblem.FORGED)]
    for place in range(HANDLE):
        for letter in b"A!\xff":
            forged = handle[:place] + bytes([letter]) + handle[place + 1 :]
            if forged != handle:
                assert store.acknowledge(forged) == [(0, HandleProblem.FORGED)]
    assert store.acknowledge(bytes(HANDLE)) == [(0, HandleProblem.FORGED)]
    assert store.leases.acknowledge("nobody", TOPIC, handle) == [(0, HandleProblem.FORGED)]
    assert store.leases.topics_of("nobody") == []
    with pytest.raises(InvalidMessage, match="receipt_handles"):
        store.acknowledge(handle[:-1])
    assert store.acknowledge(handle) == []


def test_what_a_filter_drops_counts_as_acknowledged(tmp_path: Path) -> None:
    put(tmp_path / "store", 5, tag="red")
    put(tmp_path / "store", 5, tag="blue")
    store = LeaseStore(tmp_path / "store")

    batch = store.receive(tag_expression="blue")

    assert bodies(batch) == [0, 1, 2, 3, 4]
    assert store.receive().record_count == 0
    (queue,) = store.leases.progress(GROUP, TOPIC)
    assert (queue.group_offset, queue.next_offset) == (5, 10)


@pytest.mark.parametrize("question", [{}, {"max_bytes": 700}], ids=["messages", "bytes"])
def test_what_a_predicate_chooses_comes_once_and_in_order(
    store: LeaseStore, question: dict[str, int]
) -> None:
    class Sevens:
        cost = 1
        looks = 0

        def matching(self, data: np.ndarray, positions: np.ndarray) -> np.ndarray:
            self.looks += 1
            return np.array([int(each) % 7 == 0 for each in bodies_at(data, positions)], bool)

    assert (
        store.receive(2, predicate=Sevens(), tag_expression="none", queue_ids=(3,)).record_count
        == 0
    )
    found, sevens = [], Sevens()
    while (batch := store.receive(2, predicate=sevens, **question)).record_count:
        assert batch.record_count <= 2
        found += bodies(batch)

    assert sorted(found) == [each for each in range(0, 100, 7) if each % 4 != 3]
    assert sevens.looks < 40
    progress = store.leases.progress(GROUP, TOPIC)
    assert [each.next_offset for each in progress] == [25] * 4
    assert sum(each.leased_count for each in progress) == len(found)
    store.kill()
    assert store.leases.progress(GROUP, TOPIC) == progress


def test_an_answer_holds_no_more_than_asked_for(tmp_path: Path) -> None:
    put(tmp_path / "store", 20, queues=2, properties={"text": "x" * 1000})
    store = LeaseStore(tmp_path / "store")

    assert store.receive(3).record_count == 3
    assert sum(map(len, store.receive(20, max_bytes=5000).slices)) <= 5000
    assert store.receive(20, max_bytes=1).record_count == 1


def test_a_broker_that_opens_the_store_goes_on_at_the_first_message_not_acknowledged(
    store: LeaseStore,
) -> None:
    batch = store.receive(25, queue_ids=(0,))
    store.acknowledge(batch.receipt_handles[: 4 * HANDLE] + batch.receipt_handles[5 * HANDLE :])

    store.leases.save_offsets()

    assert store.reader.committed_offsets(GROUP.name) == {TOPIC: {0: 4, 1: 0, 2: 0, 3: 0}}


def test_one_process_keeps_leases(store: LeaseStore, tmp_path: Path) -> None:
    store.receive(1)
    other = LeaseStore(tmp_path / "store")

    with pytest.raises(StoreLocked):
        other.receive(1)


def test_a_queue_of_an_orderly_group_has_no_more_rows_than_it_may(tmp_path: Path) -> None:
    messages = [Message(TOPIC, b"%d" % n, properties={"__SHARDINGKEY": f"{n}"}) for n in range(20)]
    put_messages(tmp_path / "store", messages)
    store = LeaseStore(tmp_path / "store", orderly_rows_max=5)
    batches = [store.receive(3, ORDERLY) for _ in range(3)]

    assert list(map(bodies, batches)) == [[0, 1, 2], [3, 4, 5], []]
    store.acknowledge(batches[0].receipt_handles)
    assert bodies(store.receive(3, ORDERLY)) == [6, 7, 8]


def test_what_was_handed_out_of_a_topic_that_is_deleted_waits_no_more(tmp_path: Path) -> None:
    """Nobody can acknowledge it: it would count for ever."""
    put(tmp_path / "store", 4)
    put(tmp_path / "store", 4, topic="kept")
    store = LeaseStore(tmp_path / "store")
    batch = store.receive()
    assert store.leases.receive(GROUP, "kept").record_count == 4
    store.leases.save_offsets()
    assert store.leases.group_counts() == [(GROUP.name, 8, 0)]
    assert store.acknowledge(batch.receipt_handles[: 2 * HANDLE]) == []

    with MessageStore.open(tmp_path / "store", small_config()) as writer:
        writer.delete_topic(TOPIC)
        store.leases.save_offsets()
        assert store.leases.group_counts() == [(GROUP.name, 4, 0)]
        assert store.reader.committed_offsets(GROUP.name) == {"kept": {0: 0}}
        store.kill()
        assert store.leases.group_counts() == [(GROUP.name, 4, 0)]
        writer.create_topic(TOPIC, 1)
        writer.put_all([Message(topic=TOPIC, body=b"%d" % n, queue_id=0) for n in range(7, 13)])
    assert bodies(store.receive()) == list(range(7, 13))
    store.leases.save_offsets()
    assert store.reader.committed_offsets(GROUP.name) == {TOPIC: {0: 0}, "kept": {0: 0}}
