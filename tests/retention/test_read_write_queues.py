"""Read and write queues change apart: a topic shrinks without losing a message that somebody has yet to read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config

from storage.engine import topic_changes
from storage.engine.topic_changes import check_shrink
from storage.errors import InvalidMessage, QueueNotFound, QueuesInUse
from storage.message import Message, PullStatus
from storage.store import MessageStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", small_config()) as opened:
        opened.create_topic("orders", 16)
        yield opened


def put(store: MessageStore, queue_id: int, count: int = 1) -> None:
    store.put_all([Message(topic="orders", body=b"x", queue_id=queue_id)] * count)
    writer = store.writer
    assert writer.wait_dispatched(
        writer.appended_offset, 30
    )  # a group's offset is kept in what is seen


def read(store: MessageStore, group: str, queue_id: int, queue_offset: int) -> None:
    store.reader.commit_offset(group, "orders", queue_id, queue_offset)
    store.reader.consumer_offsets.save()


def test_a_topic_shrinks_in_two_steps_and_nothing_is_lost(store: MessageStore) -> None:
    for queue_id in range(16):
        put(store, queue_id, 3)
    for queue_id in range(8):
        read(store, "billing", queue_id, 3)
    writer = store.writer
    with pytest.raises(QueuesInUse, match="16 queues are written to and 8 would be read"):
        writer.update_topic("orders", read_queue_count=8)

    topic = writer.update_topic("orders", write_queue_count=8)

    assert (topic.write_queue_count, topic.read_queue_count) == (8, 16)
    with pytest.raises(QueueNotFound):
        put(store, 8)
    put(store, 7)
    read(store, "billing", 7, 4)
    assert store.pull("orders", 15, queue_offset=0).record_count == 3
    for queue_id in range(9, 16):
        read(store, "billing", queue_id, 3)
    read(store, "billing", 8, 1)
    with pytest.raises(QueuesInUse, match="group 'billing' has 2 to read in queue 8;"):
        writer.update_topic("orders", read_queue_count=8)
    assert writer.list_topics()[0].read_queue_count == 16
    read(store, "billing", 8, 3)

    writer.update_topic("orders", read_queue_count=8)

    assert store.pull("orders", 8, queue_offset=0).status is PullStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.pull("orders", 7, queue_offset=0).record_count == 4
    topic = store.reader.topics.get("orders")
    assert (topic.read_queue_count, topic.write_queue_count, topic.perm) == (8, 8, 6)
    writer.update_topic("orders", queue_count=16)
    put(store, 8)
    assert store.pull("orders", 8, queue_offset=0).record_count == 4, "it goes on where it was"


def test_a_group_that_has_not_begun_in_a_queue_has_all_of_it_to_read(store: MessageStore) -> None:
    put(store, 0)
    put(store, 15, 5)
    read(store, "billing", 0, 1)
    store.writer.update_topic("orders", write_queue_count=8)
    with pytest.raises(QueuesInUse, match="group 'billing' has 5 to read in queue 15"):
        store.writer.update_topic("orders", read_queue_count=8)
    store.writer.update_topic("orders", read_queue_count=8, force=True)
    assert store.pull("orders", 15, queue_offset=0).status is PullStatus.NO_MATCHED_LOGIC_QUEUE


def test_nothing_is_appended_between_the_look_at_the_queues_and_the_change(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 0)
    put(store, 12, 300)
    read(store, "billing", 0, 1)
    read(store, "billing", 12, 300)
    appended: list[object] = []

    def append() -> None:
        try:
            put(store, 12)
        except QueueNotFound as refused:
            appended.append(refused)
        else:
            appended.append("stranded")

    appending = threading.Thread(target=append)

    def look(*arguments: Any) -> None:
        check_shrink(*arguments)
        appending.start()
        appending.join(0.3)  # long enough for it to be stored if nothing holds it

    monkeypatch.setattr(topic_changes, "check_shrink", look)
    store.writer.update_topic("orders", queue_count=8)
    appending.join(30)

    assert isinstance(appended[0], QueueNotFound)


def test_what_was_just_stored_counts(store: MessageStore) -> None:
    put(store, 0)
    read(store, "billing", 0, 1)
    store.writer.put([Message(topic="orders", body=b"x", queue_id=12)] * 300)
    with pytest.raises(QueuesInUse, match="group 'billing' has 300 to read in queue 12"):
        store.writer.update_topic("orders", queue_count=8)


def test_permissions_hold_from_the_next_call_on(store: MessageStore) -> None:
    put(store, 0)
    store.writer.update_topic("orders", perm=2)
    put(store, 0)
    with pytest.raises(InvalidMessage, match="may not be read: perm 2"):
        store.pull("orders", 0, queue_offset=0)
    store.writer.update_topic("orders", perm=4)
    assert store.pull("orders", 0, queue_offset=0).record_count == 2
    with pytest.raises(InvalidMessage, match="may not be written to: perm 4"):
        put(store, 0)
    with pytest.raises(InvalidMessage, match="between 0 and 7"):
        store.writer.update_topic("orders", perm=8)
