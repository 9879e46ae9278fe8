"""Topics whose queues a broker keeps in another form: a queue of ours beside it, and it starts no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import change_topics, leave_as_a_broker_does, small_config
from files_below import files_below

from storage import Message, MessageStore, offline
from storage.errors import InvalidMessage, UnsupportedFormat

BATCH_QUEUES = {"queue.type": "BatchCQ"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store as a broker leaves it: topic ``b`` has batch consume queues, ``t`` plain ones."""
    root = tmp_path / "store"
    with MessageStore.open(root, small_config()) as store:
        for topic in ("b", "t"):
            store.create_topic(topic, 1)
            store.put(Message(topic=topic, body=b"x"))
    change_topics(root, lambda table: table["b"].update(attributes=BATCH_QUEUES))
    (root / "batchconsumequeue").mkdir()
    (root / "consumequeue" / "b").rename(root / "batchconsumequeue" / "b")
    leave_as_a_broker_does(root)
    return root


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in files_below(directory)}


@pytest.mark.parametrize("told_by", ["topics.json", "batchconsumequeue"])
def test_such_a_store_is_not_opened_and_stays_as_it_was(directory: Path, told_by: str) -> None:
    if told_by == "topics.json":
        (directory / "batchconsumequeue" / "b").rename(directory / "b")
    else:
        (directory / "config" / "topics.json").unlink()
    before = contents(directory)
    with pytest.raises(UnsupportedFormat, match="topic b has batch consume queues"):
        MessageStore.open(directory, small_config())
    after = contents(directory)
    assert {path: after[path] for path in before} == before
    assert not (directory / "consumequeue" / "b").exists()


def test_a_dump_has_their_records_in_no_queue(directory: Path) -> None:
    lines = list(offline.dump(directory))
    queues = {line["topic"] for line in lines if line["type"] == "queue"}
    unqueued = [line["topic"] for line in lines if line["type"] == "unqueued"]
    assert "t" in queues
    assert "b" not in queues
    assert unqueued == ["b"]


def test_no_topic_is_made_one_of_them(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small_config()) as store:
        with pytest.raises(InvalidMessage, match=r"queue\.type"):
            store.writer.create_topic("b", 1, attributes=BATCH_QUEUES)
        store.writer.create_topic("t", 1, attributes={"queue.type": "SimpleCQ"})
        with pytest.raises(InvalidMessage, match=r"queue\.type"):
            store.writer.update_topic("t", attributes=BATCH_QUEUES)
        assert [topic.name for topic in store.list_topics()] == ["t"]
