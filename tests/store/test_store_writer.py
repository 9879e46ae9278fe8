"""Appending through both doors, in every mode: what is stored, what is acknowledged, what is visible."""

import itertools
import json

import pytest
from engine_store import (
    LOG_FILE_SIZE,
    append,
    change_settings,
    check_queues_match_log,
    queue_units_on_disk,
    record,
    records_on_disk,
    small_config,
)
from real_processes import until

from storage.clock import SystemClock
from storage.errors import (
    InvalidBatch,
    InvalidMessage,
    NotAStore,
    QueueNotFound,
    StoreClosed,
    StoreLocked,
    TopicExists,
    TopicNotFound,
    UnsupportedFormat,
)
from storage.message import Message
from storage.writer import StoreWriter


class StillClock(SystemClock):
    """Gives every record one store time."""

    def now_ms(self):
        return 1_700_000_000_000


MODES = list(itertools.product(("async", "sync"), (False, True)))


@pytest.fixture(params=MODES, ids=lambda mode: f"{mode[0]}{'-pool' if mode[1] else ''}")
def mode_config(request, tmp_path):
    flush_mode, pool = request.param
    (tmp_path / "shm").mkdir()
    return small_config(
        flush_mode=flush_mode,
        transient_pool=pool,
        transient_pool_directory=str(tmp_path / "shm"),
    )


@pytest.fixture
def writer(tmp_path):
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic("t", 4)
        yield writer


def settle(writer):
    assert writer.wait_acknowledged(writer.appended_offset, 10)
    assert writer.wait_dispatched(writer.appended_offset, 10)


def test_every_mode_stores_rolls_dispatches_and_reopens_without_looking(tmp_path, mode_config):
    directory = tmp_path / "store"
    batch = b"".join(record(queue_id=i % 4, body=b"b" * 200, tag=f"tag{i}") for i in range(16))
    with StoreWriter.open(directory, mode_config) as writer:
        writer.create_topic("t", 4)
        for _ in range(60):
            result = append(writer, batch)
            assert writer.wait_acknowledged(result.end_commit_offset, 10)
        settle(writer)
        assert writer.describe_topic("t")[1] == [(0, 240)] * 4
    assert check_queues_match_log(directory) == 960
    assert len(list((directory / "commitlog").iterdir())) > 3
    assert not (directory / "abort").exists()
    with StoreWriter.open(directory, mode_config) as writer:
        assert writer.recovered.record_count == 0
        assert writer.describe_topic("t")[1] == [(0, 240)] * 4
        result = writer.append_batch(batch)
        assert {each.first_queue_offset for each in result.ranges} == {240}
    assert check_queues_match_log(directory) == 976


def test_messages_are_completed_and_found_where_the_result_says(tmp_path, writer):
    messages = [
        Message(topic="t", body=b"one", keys=("k1", "k2"), tag="x", properties={"p": "v"}, flag=7),
        Message(topic="t", body=b"", queue_id=3, unique_key="mine"),
    ]
    results = writer.put(messages)
    stored = {each.commit_offset: each for each in records_on_disk(tmp_path / "store")}
    first, second = (stored[result.commit_offset] for result in results)
    assert first.body == b"one"
    assert first.flag == 7
    properties = first.properties
    assert (properties["KEYS"], properties["TAGS"], properties["p"]) == ("k1 k2", "x", "v")
    assert properties["UNIQ_KEY"] == results[0].unique_key
    assert len(results[0].unique_key) == 32
    assert second.queue_id == 3
    assert second.properties["UNIQ_KEY"] == "mine"
    assert second.store_host == "127.0.0.1:10911"


def test_messages_without_a_queue_go_round_all_queues(writer):
    results = writer.put([Message(topic="t", body=b"") for _ in range(8)])
    assert [each.queue_id for each in results] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_generated_unique_keys_never_repeat(writer):
    results = writer.put([Message(topic="t", body=b"") for _ in range(200)])
    assert len({each.unique_key for each in results}) == 200


@pytest.mark.parametrize(
    ("bad", "index", "text"),
    [
        (record()[:-3], 1, "range ends inside"),
        (record(queue_id=-1), 1, "queue id"),
        (record(properties={"REAL_TOPIC": "x"}), 1, "reserved"),
        (record(sys_flag=0x4), 1, "system flag"),
        (record(properties={"DELAY": "x"}), 1, "delay"),
        (record(body=b"x" * 1025), 1, "body"),
        (b"\0" * 100, 1, "never written"),
    ],
)
def test_a_bad_record_refuses_the_whole_batch_and_names_its_index(tmp_path, bad, index, text):
    with StoreWriter.open(tmp_path / "store", small_config(body_size_max=1024)) as writer:
        writer.create_topic("t", 4)
        with pytest.raises(InvalidBatch, match=text) as refused:
            writer.append_batch(record() + bad)
        assert refused.value.record_index == index
        assert writer.appended_offset == 0
        assert writer.append_batch(record()).ranges[0].first_queue_offset == 0


def test_batches_for_unknown_topics_or_queues_store_nothing(writer):
    with pytest.raises(TopicNotFound):
        writer.append_batch(record() + record(topic="nope"))
    with pytest.raises(QueueNotFound):
        writer.append_batch(record() + record(queue_id=4))
    with pytest.raises(InvalidBatch):
        writer.append_batch(b"")
    assert writer.appended_offset == 0


def test_batches_that_are_appended_together_are_stored_as_each_alone(tmp_path):
    batches = [
        record(body=b"1") + record(body=b"two"),
        record(queue_id=2, keys=("k",)),
        record(topic="other", body=b"x" * 300) * 3,
        record(body=b"last", tag="a"),
    ]
    stores = {}
    for name in ("alone", "together"):
        with StoreWriter.open(tmp_path / name, small_config(), clock=StillClock()) as writer:
            for topic in ("t", "other"):
                writer.create_topic(topic, 4)
            writer.append_batch(record())
            if name == "alone":
                results = [writer.append_batch(each) for each in batches]
            else:
                results = writer.append_together(list(map(memoryview, batches)), queues_max=3)
            assert results[0].ranges[0].first_queue_offset == 1
            settle(writer)
        log = next((tmp_path / name / "commitlog").iterdir()).read_bytes()
        stores[name] = results, log, check_queues_match_log(tmp_path / name)
    assert stores["alone"] == stores["together"]


@pytest.mark.parametrize(
    "batches",
    [
        [record(), b"", record()],
        [record(), b""],
        [record(), record() + record(queue_id=1)],
        [record()[:-20], record()[-20:]],
        [record() + record()[:-20], record()[-20:] + record()],
        [record(), record(topic="nope")],
        [record(), record(properties={"DELAY": "3"})],
        [record(), record(body=b"x" * 1025)],
        [record(queue_id=queue_id) for queue_id in (0, 1, 2)],
    ],
)
def test_batches_that_cannot_be_appended_together_store_nothing(tmp_path, batches):
    with StoreWriter.open(tmp_path / "store", small_config(body_size_max=1024)) as writer:
        writer.create_topic("t", 4)
        assert writer.append_together(list(map(memoryview, batches)), queues_max=2) is None
        assert writer.appended_offset == 0
        assert writer.append_batch(record()).ranges[0].first_queue_offset == 0


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message(topic="t", body=b"", keys=("",)), "keys"),
        (Message(topic="t", body=b"", tag="a|b"), "tag"),
        (Message(topic="t", body=b"", properties={"TAGS": "x"}), "properties"),
        (Message(topic="t", body=b"", properties={"p": "x" * 32_760}), "properties"),
        (Message(topic="t", body=b"x" * 2_000), "body"),
        (Message(topic="a/b", body=b""), "topic"),
        (Message(topic="t", body=b"", delay_level=-1), "delay_level"),
        (Message(topic="t", body=b"", delay_level=1, delay_ms=1), "delay_level"),
    ],
)
def test_a_bad_message_refuses_all_of_its_request(tmp_path, message, field):
    with StoreWriter.open(tmp_path / "store", small_config(body_size_max=1024)) as writer:
        writer.create_topic("t", 4)
        with pytest.raises(InvalidMessage) as refused:
            writer.put([Message(topic="t", body=b"good"), message])
        assert refused.value.field == field
        assert writer.appended_offset == 0


def test_a_batch_longer_than_a_file_is_refused_and_one_that_fits_exactly_is_not(writer):
    room = LOG_FILE_SIZE - 8
    overhead = len(record(body=b""))
    with pytest.raises(InvalidMessage, match="one file"):
        writer.append_batch(record(body=b"x" * (room - overhead + 1)))
    assert append(writer, record(body=b"x" * (room - overhead))).commit_offset == 0
    assert append(writer, record()).commit_offset == LOG_FILE_SIZE


def test_a_topic_that_a_broker_acts_on_takes_no_messages(tmp_path):
    name = "SCHEDULE_TOPIC_XXXX"
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic(name, 18)
        with pytest.raises(InvalidMessage, match="a broker's own"):
            writer.append_batch(record(topic=name))
        with pytest.raises(InvalidMessage, match="a broker's own"):
            writer.put([Message(topic=name, body=b"")])
        assert writer.appended_offset == 0


def test_topics_are_created_changed_and_deleted_durably(tmp_path):
    directory = tmp_path / "store"
    with StoreWriter.open(directory, small_config()) as writer:
        writer.create_topic("t", 2, attributes={"message.type": "NORMAL"})
        with pytest.raises(TopicExists):
            writer.create_topic("t", 2)
        writer.update_topic("t", queue_count=3, perm=4)
        with pytest.raises(InvalidMessage, match="perm"):
            writer.append_batch(record())
        writer.update_topic("t", perm=6)
    document = json.loads((directory / "config" / "topics.json").read_text())
    table = document["topicConfigTable"]["t"]
    assert (table["readQueueNums"], table["writeQueueNums"], table["perm"]) == (3, 3, 6)
    assert table["attributes"] == {"message.type": "NORMAL"}
    assert document["dataVersion"]["counter"] == 3
    with StoreWriter.open(directory, small_config()) as writer:
        assert [topic.name for topic in writer.list_topics()] == ["t"]
        writer.delete_topic("t")
        with pytest.raises(TopicNotFound):
            writer.describe_topic("t")


def test_the_table_follows_a_change_while_the_store_is_open(tmp_path):
    with StoreWriter.open(tmp_path, small_config(queue_flush_interval_ms=10)) as writer:
        writer.create_topic("t", 2)
        table = tmp_path / "config" / "topics.json"
        until(lambda: "t" in json.loads(table.read_text())["topicConfigTable"])


def test_a_deleted_topic_starts_again_and_stays_gone_after_full_verification(tmp_path):
    directory = tmp_path / "store"
    with StoreWriter.open(directory, small_config()) as writer:
        writer.create_topic("t", 1)
        writer.append_batch(record() * 5)
        writer.delete_topic("t")
        assert not (directory / "consumequeue" / "t").exists()
        writer.create_topic("t", 1)
        kept = writer.append_batch(record(body=b"second life"))
        assert kept.ranges[0].first_queue_offset == 0
        settle(writer)
    (directory / "checkpoint").unlink()
    with StoreWriter.open(directory, small_config()) as writer:
        assert writer.describe_topic("t")[1] == [(0, 1)]
    assert queue_units_on_disk(directory, "t", 0)[0][0] == kept.commit_offset


def test_the_directory_is_locked_until_close(tmp_path):
    with StoreWriter.open(tmp_path / "store", small_config()), pytest.raises(StoreLocked):
        StoreWriter.open(tmp_path / "store", small_config())
    StoreWriter.open(tmp_path / "store", small_config()).close()


def test_directories_that_are_not_stores_are_refused_untouched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAStore, match="not a store"):
        StoreWriter.open(tmp_path)
    with pytest.raises(NotAStore, match="not a directory"):
        StoreWriter.open(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_newer_format_is_refused(tmp_path):
    directory = tmp_path / "store"
    StoreWriter.open(directory, small_config()).close()
    change_settings(directory, formatVersion=99)
    with pytest.raises(UnsupportedFormat, match="99"):
        StoreWriter.open(directory, small_config())


def test_the_sizes_a_store_was_made_with_win_over_the_configuration(tmp_path):
    StoreWriter.open(tmp_path / "store", small_config()).close()
    other = small_config(commit_log_file_size=1 << 20, consume_queue_file_size=4_000)
    with StoreWriter.open(tmp_path / "store", other) as writer:
        assert writer.config.commit_log_file_size == LOG_FILE_SIZE
        assert writer.config.consume_queue_file_size == 2_000


def test_a_closed_writer_refuses_and_closes_twice(tmp_path):
    writer = StoreWriter.open(tmp_path / "store", small_config())
    writer.create_topic("t", 1)
    writer.close()
    writer.close()
    with pytest.raises(StoreClosed):
        writer.append_batch(record())


def test_ipv6_store_hosts_are_written_into_records(tmp_path):
    directory = tmp_path / "store"
    config = small_config(store_host="[2001:db8::7]:10911")
    with StoreWriter.open(directory, config) as writer:
        writer.create_topic("t", 1)
        result = writer.put([Message(topic="t", body=b"x")])[0]
        writer.append_batch(record())
    assert [each.store_host for each in records_on_disk(directory)] == [
        "[2001:db8:0:0:0:0:0:7]:10911"
    ] * 2
    assert len(result.message_id) == 56
