"""What changes of a topic while its writer runs is seen by the next receive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_store import small_config
from lease_store import GROUP, TOPIC, LeaseStore, bodies

from storage import Message, MessageStore
from storage.leases.queues import retry_topics


@pytest.fixture(name="writer")
def _writer(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic(TOPIC, 1)
        yield writer


def stored(writer: MessageStore, body: int, *, topic: str = TOPIC, queue_id: int = 0) -> None:
    writer.put(Message(topic=topic, body=b"%d" % body, queue_id=queue_id))
    writer.writer.wait_dispatched(writer.writer.appended_offset, 20)


def test_a_queue_that_is_added_is_received_from(tmp_path: Path, writer: MessageStore) -> None:
    store = LeaseStore(tmp_path / "store")
    store.receive()
    writer.writer.update_topic(TOPIC, read_queue_count=2, write_queue_count=2)
    stored(writer, 1, queue_id=1)

    assert bodies(store.receive()) == [1]


def test_a_retry_topic_that_is_made_is_received_from(tmp_path: Path, writer: MessageStore) -> None:
    store = LeaseStore(tmp_path / "store")
    store.receive()
    retries, _ = retry_topics(GROUP.name, TOPIC)
    writer.create_topic(retries, 1)
    stored(writer, 2, topic=retries)

    assert bodies(store.receive()) == [2]


def test_a_topic_that_is_made_again_begins_anew(tmp_path: Path, writer: MessageStore) -> None:
    store = LeaseStore(tmp_path / "store")
    stored(writer, 3)
    before = store.receive().receipt_handles
    store.clock.pass_ms(5)
    writer.delete_topic(TOPIC)
    writer.create_topic(TOPIC, 1)
    stored(writer, 4)

    assert bodies(store.receive()) == [4]
    assert len(store.acknowledge(before)) == 1  # it is refused
