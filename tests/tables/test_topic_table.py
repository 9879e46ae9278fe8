"""config/topics.json: a broker's shape in, a broker's shape out, nothing dropped, no change lost before it is written."""

import json

import pytest
from golden import golden_copy

from storage.errors import InvalidMessage, TopicNotFound
from storage.files.filesystem import FileSystem
from storage.journal.states import StateJournal
from storage.tables.table_files import TOPICS_FILE
from storage.tables.topic_table import TopicTable, read_topics
from storage.tables.topics import topics_document

FILES = FileSystem()


def table_in(root):
    return TopicTable(FILES, root / "config", StateJournal(FILES, root / "journal"))


def names_read_in(root):
    """Return what a reader that is opened now finds, which is what a tool finds."""
    found = [topic.name for topic in TopicTable(FILES, root / "config", root / "journal")]
    assert sorted(read_topics(FILES, root / "config", root / "journal")) == found
    return found


def test_a_brokers_table_is_read_whole_and_kept_when_one_topic_is_added(tmp_path):
    store = golden_copy("features", tmp_path)
    before = json.loads((store / "config" / "topics.json").read_text())
    table = table_in(store)
    assert table.get("fifo").attributes == {"message.type": "FIFO"}

    table.create("new", queue_count=2, attributes={"message.type": "NORMAL"}, now_ms=77)
    table.save()

    after = json.loads((store / "config" / "topics.json").read_text())
    added = after["topicConfigTable"].pop("new")
    assert after["topicConfigTable"] == before["topicConfigTable"]
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    assert after["dataVersion"]["timestamp"] == 77
    assert added.keys() == before["topicConfigTable"]["fifo"].keys()
    backup = json.loads((store / "config" / "topics.json.bak").read_text())
    assert backup == before


def test_a_change_is_read_before_the_table_is_written_and_after_a_kill(tmp_path):
    table = table_in(tmp_path)
    table.create("first", queue_count=1, attributes={}, now_ms=1)
    reader = TopicTable(FILES, tmp_path / "config", tmp_path / "journal")
    table.save()
    table.create("second", queue_count=1, attributes={}, now_ms=2)
    table.replace(table.changed("first", perm=4), now_ms=3)
    reader.reload()
    assert [topic.name for topic in reader] == ["first", "second"] == names_read_in(tmp_path)
    assert reader.get("first").perm == 4

    again = table_in(tmp_path)  # nothing was closed or saved
    assert list(again) == list(table)
    again.save()
    for each in StateJournal(FILES, tmp_path / "journal").names("topic/"):
        raise AssertionError(f"{each} is still in the journal")
    reader.reload()
    assert list(reader) == list(table)


def test_a_table_that_a_broker_has_changed_since_counts(tmp_path):
    table = table_in(tmp_path)
    table.create("ours", queue_count=1, attributes={}, now_ms=1)
    table.save()
    table.replace(table.changed("ours", perm=4), now_ms=2)
    version = {"counter": 2, "stateVersion": 0, "timestamp": 3}  # a broker's first change
    broker = topics_document({}, version, {})
    (tmp_path / "config" / TOPICS_FILE).replace(tmp_path / "config" / f"{TOPICS_FILE}.bak")
    (tmp_path / "config" / TOPICS_FILE).write_bytes(broker)
    assert names_read_in(tmp_path) == []
    assert list(table_in(tmp_path)) == []


def test_a_deleted_topic_does_not_return_from_the_journal(tmp_path):
    table = table_in(tmp_path)
    table.create("kept", queue_count=1, attributes={}, now_ms=1)
    table.create("gone", queue_count=1, attributes={}, now_ms=2)
    table.delete("gone", now_ms=3)
    assert names_read_in(tmp_path) == ["kept"]
    assert [topic.name for topic in table_in(tmp_path)] == ["kept"]


def test_nothing_readable_is_an_empty_table(tmp_path):
    assert len(table_in(tmp_path)) == 0


@pytest.mark.parametrize("name", ["", "a/b", "x" * 128, "sp ace", "..", "ü"])
def test_names_that_rocketmq_forbids_are_refused(tmp_path, name):
    with pytest.raises(InvalidMessage) as refused:
        table_in(tmp_path).create(name, queue_count=1, attributes={}, now_ms=1)
    assert refused.value.field == "topic"
    assert names_read_in(tmp_path) == []


@pytest.mark.parametrize("queue_count", [0, -1, 65_537])
def test_impossible_queue_counts_are_refused(tmp_path, queue_count):
    table = table_in(tmp_path)
    with pytest.raises(InvalidMessage, match="queue_count"):
        table.create("t", queue_count=queue_count, attributes={}, now_ms=1)
    table.create("t", queue_count=1, attributes={}, now_ms=1)
    with pytest.raises(InvalidMessage, match="queue_count"):
        table.changed("t", read_queue_count=queue_count)


def test_read_and_write_queues_change_apart(tmp_path):
    table = table_in(tmp_path)
    table.create("t", queue_count=4, attributes={"a": "1"}, now_ms=1)
    changed = table.changed("t", read_queue_count=8, write_queue_count=2, attributes={"b": "2"})
    table.replace(changed, now_ms=2)
    assert (changed.read_queue_count, changed.write_queue_count, changed.queue_count) == (8, 2, 8)
    assert changed.attributes == {"a": "1", "b": "2"}
    again = table_in(tmp_path).get("t")
    assert again == changed


def test_unknown_topics_are_named(tmp_path):
    table = table_in(tmp_path)
    for act in (table.get, lambda name: table.delete(name, now_ms=1)):
        with pytest.raises(TopicNotFound, match="nope"):
            act("nope")


def test_attributes_are_bounded_also_when_they_grow(tmp_path):
    table = table_in(tmp_path)
    with pytest.raises(InvalidMessage, match="32767"):
        table.create("t", queue_count=1, attributes={"a": "v" * 32_767}, now_ms=1)
    table.create("t", queue_count=1, attributes={"a": "v" * 20_000}, now_ms=1)
    with pytest.raises(InvalidMessage, match="32767"):
        table.changed("t", attributes={"b": "v" * 20_000})
    assert table.changed("t", attributes={"a": "v"}).attributes == {"a": "v"}


def test_a_message_type_that_a_broker_would_refuse_is_refused(tmp_path):
    table = table_in(tmp_path)
    table.create("t", queue_count=1, attributes={"message.type": "Fifo"}, now_ms=1)
    refused = pytest.raises(InvalidMessage, match="NORMAL, FIFO, DELAY, TRANSACTION, MIXED, not")
    with refused:
        table.create("u", queue_count=1, attributes={"message.type": "BANANA"}, now_ms=1)
    with refused:
        table.changed("t", attributes={"message.type": ""})
    assert "u" not in table and table.get("t").attributes == {"message.type": "FIFO"}


def test_a_table_that_changes_topic_by_topic_is_written_as_one_that_is_written_whole(tmp_path):
    table = table_in(tmp_path)
    for number in range(5):
        table.create(f"t{number}", queue_count=number + 1, attributes={}, now_ms=number)
        table.save()
    table.replace(table.changed("t1", perm=4), now_ms=6)
    table.delete("t3", now_ms=7)
    table.create("t3", queue_count=9, attributes={"a": "ü"}, now_ms=8)
    table.save()
    version = {"counter": 8, "stateVersion": 0, "timestamp": 8}
    whole = topics_document({topic.name: topic for topic in table}, version, {})
    assert (tmp_path / "config" / TOPICS_FILE).read_bytes() == whole
