"""What a writer counts: its log says how much was appended, by whatever way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from engine_store import record, small_config

from storage.counts import Histogram
from storage.message import Message, ProducerSequence
from storage.writer import StoreWriter


def batch(*places: tuple[str, int]) -> bytes:
    return b"".join(record(topic, queue_id, topic.encode()) for topic, queue_id in places)


def test_records_and_bytes_are_counted_by_topic_whatever_way_they_came(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "s", small_config()) as writer:
        writer.create_topic("a", 3)
        writer.create_topic("b", 1)
        writer.put([Message(topic="a", body=b"one", queue_id=0)])
        writer.put(
            [Message(topic="a", body=b"1", queue_id=1), Message(topic="b", body=b"22", queue_id=0)]
        )
        writer.append_batch(batch(("a", 0), ("a", 2), ("a", 0)))
        before = writer.appended_offset
        writer.append_batch(batch(("b", 0)), producer=ProducerSequence(7, 1))
        told = writer.appended_offset - before
        assert writer.append_batch(batch(("b", 0)), producer=ProducerSequence(7, 1))  # a repeat
        appended = writer.counts.appended()
        assert {name: count for name, (count, _) in appended.items()} == {b"a": 5, b"b": 2}
        assert sum(size for _, size in appended.values()) == writer.appended_offset
        assert appended[b"b"][1] > told
        assert sum(writer.counts.append.counts) == 4
        assert writer.counts.offsets()["appended"] == writer.appended_offset


def test_a_batch_for_very_many_queues_is_counted_like_any_other(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "s", small_config()) as writer:
        writer.create_topic("wide", 100)
        for _ in range(2):
            writer.append_batch(batch(*(("wide", queue_id) for queue_id in range(100))))
        assert writer.counts.appended() == {b"wide": (200, writer.appended_offset)}


def test_what_was_there_before_the_start_is_not_counted_nor_what_a_deleted_topic_had(
    tmp_path: Path,
) -> None:
    with StoreWriter.open(tmp_path / "s", small_config()) as writer:
        writer.create_topic("a", 1)
        writer.put([Message(topic="a", body=b"before", queue_id=0)])
    with StoreWriter.open(tmp_path / "s", small_config()) as writer:
        begin = writer.appended_offset
        writer.put([Message(topic="a", body=b"since", queue_id=0)])
        assert writer.counts.appended() == {b"a": (1, writer.appended_offset - begin)}
        writer.delete_topic("a")
        assert writer.counts.appended() == {}
        writer.create_topic("b", 1)
        begin = writer.appended_offset
        writer.put([Message(topic="b", body=b"in a place that was free", queue_id=0)])
        assert writer.counts.appended() == {b"b": (1, writer.appended_offset - begin)}


def test_syncs_and_latencies_are_timed(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "s", small_config(flush_mode="sync")) as writer:
        writer.create_topic("a", 1)
        for _ in range(3):
            writer.put([Message(topic="a", body=b"", queue_id=0)])
            writer.wait_acknowledged(writer.appended_offset)
            assert writer.wait_dispatched(writer.appended_offset, 10)
        counts = writer.counts
        assert (
            sum(counts.sync.counts) == sum(counts.flush.counts) == sum(counts.dispatch.counts) == 3
        )
        assert counts.flush.total >= counts.sync.total > 0


def test_half_messages_are_counted_by_topic_and_end(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "s", small_config()) as writer:
        for topic in ("a", "b"):
            writer.create_topic(topic, 1)
        transactions = writer.transactions
        for number, topic in enumerate(("a", "a", "b", "a")):
            half = record(topic, 0, properties={"UNIQ_KEY": f"key-{number}"})
            transactions.prepare(half, transaction_id=f"t{number}")
        assert transactions.table.topic_counts() == {"a": 3, "b": 1}
        transactions.end(["t0", "t2"], commit=True)
        transactions.end(["t1"], commit=False)
        transactions.end(["t1"], commit=False)  # again
        assert transactions.table.topic_counts() == {"a": 1}
        assert transactions.ended_counts(commit=True) == {"a": 1, "b": 1}
        assert transactions.ended_counts(commit=False) == {"a": 1}


def test_a_histogram_has_each_value_in_the_first_bucket_that_holds_it() -> None:
    times = Histogram((0.5, 1.0, 2.0))
    values = (0.0, 0.5, 0.6, 1.0, 2.0, 2.1, 99.0)
    for value in values:
        times.add(value)
    assert times.counts == [2, 2, 1, 2]
    assert np.isclose(times.total, sum(values))
