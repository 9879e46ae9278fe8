"""A broker forgets a topic by taking it from its table and its queues from the disk; the log keeps it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from engine_store import change_topics, leave_as_a_broker_does, small_config
from recovered_copy import recovered_copy

from storage import Message, MessageStore, offline


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store as a broker leaves it that was stopped in order, one of whose topics was deleted."""
    with MessageStore.open(tmp_path, small_config()) as store:
        for topic in ("deleted", "kept"):
            store.create_topic(topic, 1)
            store.put(Message(topic=topic, body=b"x"))
    change_topics(tmp_path, lambda table: table.pop("deleted"))
    shutil.rmtree(tmp_path / "consumequeue" / "deleted")
    leave_as_a_broker_does(tmp_path)
    return tmp_path


def queues(directory: Path) -> set[str]:
    """Topics with a queue, after a recovery."""
    with tempfile.TemporaryDirectory() as scratch:
        lines = list(offline.dump(recovered_copy(directory, Path(scratch))))
    return {line["topic"] for line in lines if line["type"] == "queue"} - {"SCHEDULE_TOPIC_XXXX"}


def test_a_dump_has_its_records_in_no_queue(directory: Path) -> None:
    unqueued = [line for line in offline.dump(directory) if line["type"] == "unqueued"]
    assert [line["topic"] for line in unqueued] == ["deleted"]
    assert queues(directory) == {"kept"}


def test_it_stays_deleted_whatever_happens_to_the_store_later(directory: Path) -> None:
    with MessageStore.open(directory, small_config()) as store:
        assert [topic.name for topic in store.list_topics()] == ["kept"]
    (directory / "checkpoint").unlink()
    (directory / "abort").touch()
    with MessageStore.open(directory, small_config()) as store:
        assert [topic.name for topic in store.list_topics()] == ["kept"]
        store.create_topic("deleted", 1)
        assert store.put(Message(topic="deleted", body=b"y")).queue_offset == 0


@pytest.mark.parametrize("sign", ["abort", "no queues", "no table", "its queues"])
def test_queues_that_may_be_lost_are_made_again(directory: Path, sign: str) -> None:
    if sign == "abort":
        (directory / "abort").touch()
    elif sign == "no queues":
        shutil.rmtree(directory / "consumequeue")
    elif sign == "no table":
        shutil.rmtree(directory / "config")
    else:
        (directory / "consumequeue" / "deleted" / "0").mkdir(parents=True)
    assert queues(directory) == {"deleted", "kept"}
