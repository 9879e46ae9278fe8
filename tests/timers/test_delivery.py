"""Delayed messages come to their topic when they are due, never before, as a broker would write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import record, records_on_disk
from hand_store import NOW_MS, TimerStore

from storage.engine.topic_changes import STORES_OWN
from storage.errors import (
    InvalidBatch,
    InvalidMessage,
    TooLateToRecall,
    TopicNotFound,
)
from storage.format.stage import stage_prefix, unique_key
from storage.message import Message
from storage.timers import worker


def test_a_message_comes_at_its_time_to_the_millisecond(tmp_path: Path, store: TimerStore) -> None:
    result = store.put(
        b"soon", deliver_at_ms=NOW_MS + 1_234, queue_id=1, unique_key="AB12", tag="A"
    )
    assert (result.topic, result.queue_id, result.queue_offset) == ("later", 1, -1)
    assert result.recall_ms == NOW_MS - 500 + 1_000 + 1
    store.settle()
    assert store.bodies() == []
    store.pass_to(NOW_MS + 1_233)
    assert store.bodies() == []
    store.pass_to(NOW_MS + 1_234)
    [copy] = store.records()
    assert (copy.body, copy.queue_id, copy.queue_offset) == (b"soon", 1, 0)
    assert copy.store_timestamp_ms == NOW_MS + 1_234
    properties = dict(copy.properties)
    properties.pop("__CRC32#")
    assert properties == {
        "UNIQ_KEY": "AB12", "WAIT": "true", "TAGS": "A", "REAL_TOPIC": "later", "REAL_QID": "1",
        "TIMER_DELIVER_MS": str(NOW_MS + 1_234), "TIMER_OUT_MS": str(NOW_MS + 500),
        "TIMER_ENQUEUE_MS": str(NOW_MS - 500), "TIMER_DEQUEUE_MS": str(NOW_MS + 1_234),
    }  # fmt: skip
    [parked] = [each for each in records_on_disk(tmp_path) if each.topic == "rmq_sys_wheel_timer"]
    for name in ("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"):
        properties.pop(name)
    assert {**parked.properties, "__CRC32#": ""} == {**properties, "__CRC32#": ""}
    store.pass_to(NOW_MS + 100_000)
    assert store.bodies() == [b"soon"]


@pytest.mark.parametrize(("level", "delay_ms"), [(1, 1_000), (3, 10_000), (18, 7_200_000)])
def test_a_level_delays_as_long_as_it_says(
    tmp_path: Path, store: TimerStore, level: int, delay_ms: int
) -> None:
    result = store.put(b"level", delay_level=level)
    assert (result.queue_offset, result.recall_ms) == (-1, 0)
    parked = records_on_disk(tmp_path)[-1]
    assert (parked.topic, parked.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)
    assert parked.properties["DELAY"] == str(level)
    store.pass_to(NOW_MS + delay_ms - 1)
    assert store.bodies() == []
    store.pass_to(NOW_MS + delay_ms)
    [copy] = store.records()
    assert copy.properties["DELAY"] == str(level)
    assert copy.properties["REAL_TOPIC"] == "later"


def test_the_past_is_now_and_too_far_is_refused(store: TimerStore) -> None:
    result = store.put(b"past", deliver_at_ms=NOW_MS - 5_000)
    assert (result.queue_offset, result.recall_ms) == (0, 0)
    assert store.bodies() == [b"past"]
    day = 86_400_000
    store.put(b"far", delay_ms=40 * day)
    for fields in (
        {"delay_ms": 40 * day + 1}, {"deliver_at_ms": NOW_MS + 40 * day + 1}, {"delay_level": -1},
        {"delay_level": 1, "delay_ms": 1}, {"delay_ms": 5, "deliver_at_ms": NOW_MS + 5},
    ):  # fmt: skip
        with pytest.raises(InvalidMessage):
            store.put(b"refused", **fields)
    store.pass_to(NOW_MS + 40 * day)
    assert store.bodies() == [b"past", b"far"]


def test_a_batch_has_delayed_and_other_messages(store: TimerStore) -> None:
    results = store.writer.put(
        [Message("later", b"a", queue_id=0), Message("later", b"b", queue_id=0, delay_ms=500),
         Message("later", b"c", queue_id=0), Message("later", b"d", queue_id=0, delay_level=1)]
    )  # fmt: skip
    assert [result.queue_offset for result in results] == [0, -1, 1, -1]
    store.pass_to(NOW_MS + 1_000)
    assert store.bodies() == [b"a", b"c", b"b", b"d"]
    assert store.records()[0].properties.keys() == store.records()[1].properties.keys()


def test_a_topic_that_was_created_again_gets_nothing_from_before(
    tmp_path: Path, store: TimerStore
) -> None:
    store.writer.create_topic("other", 1)
    store.writer.put([Message("other", b"old", delay_ms=10)])
    store.writer.put([Message("other", b"old level", delay_level=1)])
    store.writer.delete_topic("other")
    store.writer.create_topic("other", 1)
    store.writer.put([Message("other", b"new", delay_ms=10)])
    store.pass_to(NOW_MS + 2_000)
    bodies = [each.body for each in records_on_disk(tmp_path) if each.topic == "other"]
    assert bodies == [b"new"]
    assert store.writer.timers.counts.topic_deleted == 2


@pytest.mark.parametrize("name", STORES_OWN)
def test_topics_of_the_store_itself_are_not_deleted(store: TimerStore, name: str) -> None:
    store.put(b"parked", delay_ms=1_000)
    if name not in {topic.name for topic in store.writer.list_topics()}:
        store.writer.create_topic(name, 1)
    with pytest.raises(InvalidMessage):
        store.writer.delete_topic(name)
    store.pass_to(NOW_MS + 1_000)
    assert store.bodies() == [b"parked"]


def test_a_clock_that_goes_back_or_far_ahead_loses_nothing(store: TimerStore) -> None:
    store.put(b"one", delay_ms=1_000)
    store.put(b"two", delay_level=1)
    store.pass_to(NOW_MS - 86_400_000)
    store.put(b"three", delay_ms=1_000)
    store.settle()
    assert store.bodies() == [b"two"]  # of a level, and stored at a time that is to come
    store.pass_to(NOW_MS - 86_400_000 + 1_000)
    assert store.bodies() == [b"two", b"three"]
    store.pass_to(NOW_MS + 365 * 86_400_000)
    assert sorted(store.bodies()) == [b"one", b"three", b"two"]


def test_a_recalled_message_is_not_delivered_and_others_are(
    tmp_path: Path, store: TimerStore
) -> None:
    results = [
        store.put(b"%d" % number, delay_ms=5_000, unique_key=f"KEY{number}") for number in range(4)
    ]
    for result in (results[1], results[3]):
        store.writer.timers.recall("later", result.unique_key, result.recall_ms)
    store.writer.timers.recall("later", "UNKNOWN", results[0].recall_ms)
    recall = records_on_disk(tmp_path)[-1]
    properties = dict(recall.properties)
    properties.pop("__CRC32#")
    assert (recall.topic, recall.body) == ("rmq_sys_wheel_timer", b"0")
    assert properties == {
        "TAGS": "_RECALL_TAG_", "UNIQ_KEY": "UNKNOWN", "WAIT": "true", "REAL_TOPIC": "later",
        "REAL_QID": "0", "TIMER_DEL_UNIQKEY": "later+UNKNOWN",
        "TIMER_DELIVER_MS": str(results[0].recall_ms), "TIMER_OUT_MS": str(results[0].recall_ms - 1),
    }  # fmt: skip
    store.pass_to(NOW_MS + 4_999)
    assert store.bodies() == []
    store.pass_to(NOW_MS + 5_000)
    assert sorted(store.bodies()) == [b"0", b"2"]
    assert store.writer.timers.counts.recalled == 2
    with pytest.raises(TooLateToRecall):
        store.writer.timers.recall("later", results[0].unique_key, results[0].recall_ms)
    with pytest.raises(TopicNotFound):
        store.writer.timers.recall("none", "KEY", NOW_MS + 100_000)


def test_a_staged_record_cannot_be_delayed(store: TimerStore) -> None:
    staging = store.writer.staged.stage("app", 0, "a")
    assert staging is not None
    key = unique_key(stage_prefix("app", 0, "a"), 0)
    for delay in ({"DELAY": "3"}, {"TIMER_DELAY_MS": "1000"}):
        with pytest.raises(InvalidBatch, match="cannot be delayed"):
            staging.add(record(topic="later", properties={"UNIQ_KEY": key, **delay}))
    assert staging.add(record(topic="later", properties={"UNIQ_KEY": key})) == 1
    staging.discard()


def test_a_damaged_record_is_passed_over_and_counted(tmp_path: Path) -> None:
    store = TimerStore(tmp_path)
    for body in (b"before", b"damaged", b"after"):
        store.put(body, delay_ms=1_000, queue_id=0)
    store.put(b"damaged level", delay_level=1, queue_id=0)
    store.put(b"level", delay_level=1, queue_id=0)
    store.settle()
    [log] = (tmp_path / "commitlog").glob("0*0")
    with log.open("r+b") as file:
        data = file.read()
        for body in (b"damaged", b"damaged level"):
            file.seek(data.index(body))
            file.write(b"D")
    store.pass_to(NOW_MS + 1_000)
    counts = store.writer.timers.counts
    assert (counts.delivered, counts.damaged) == (3, 2)
    assert store.writer.timers.status().pending_count == 0
    assert (tmp_path / "commitlog").exists()
    store.close()


COUNT = 20


DUE_MS = NOW_MS + 5_000


BIG = b"x" * 3_000  # six of them are more than a step of a small store reads


def put_backwards(store: TimerStore, *, body: bytes = b"", settles: bool = False) -> list[bytes]:
    """Put messages, the last one first; return their bodies in the order of their times."""
    for number in range(COUNT):
        due_ms = DUE_MS - 100 * number
        store.put(b"%02d" % number + body, deliver_at_ms=due_ms, queue_id=0)
        if settles:
            store.settle()
    return [b"%02d" % number + body for number in reversed(range(COUNT))]


def test_more_than_a_step_takes_up(store: TimerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "ROWS_MAX", 2)
    expected = put_backwards(store)
    store.pass_to(DUE_MS)
    for _ in range(COUNT):
        store.settle()
    assert store.bodies() == expected


@pytest.mark.parametrize("settles", [True, False])
def test_more_than_a_step_reads(store: TimerStore, settles: bool) -> None:
    expected = put_backwards(store, body=BIG, settles=settles)
    store.pass_to(DUE_MS)
    assert store.bodies() == expected
