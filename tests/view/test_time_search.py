"""Offsets by time: the exact search against a list, and against every answer of a broker."""

from __future__ import annotations

import bisect
from pathlib import Path

import pytest
from engine_store import small_config
from golden import ASKED, KILLED, golden_answers, golden_dump, golden_store

from storage import Message, MessageStore
from storage.format.consume_entry import UNIT_SIZE
from storage.reader import StoreReader
from storage.testing import SteppedClock, SteppedWorkers
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

CONFIG = small_config(flush_mode="sync")
HOLES = {("cleaned", "orders", 3)}
"""A queue whose minimum a restarted broker puts at 0, though its files from there are gone."""


@pytest.mark.parametrize("name", [name for name in ASKED if name not in KILLED])
def test_exact_search_answers_as_the_broker(name: str) -> None:
    """Answers differ only in the queue whose minimum the broker gets wrong."""
    asked = 0
    with StoreReader.open(golden_store(name)) as reader:
        known = set(reader.queues_on_disk())
        for line in golden_answers(name):
            question = line["question"]
            place = (question.get("topic"), question.get("queue"))
            if question["kind"] != "offsetByTime" or place not in known or (name, *place) in HOLES:
                continue
            asked += 1
            offset = reader.offset_by_time(
                *place,
                timestamp_ms=question["timestamp"],
                boundary="upper" if question.get("boundary") == "UPPER" else "lower",
            )
            assert offset == line["answer"]["offset"], question
    assert asked > 30


@pytest.mark.parametrize("name", ["basic", "slow", "cleaned"])
def test_exact_search_is_a_bisection_of_the_store_times(name: str) -> None:
    queues: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for line in golden_dump(name):
        if line["type"] == "message":
            place = (line["topic"], line["queueId"])
            queues.setdefault(place, []).append((line["storeTimestamp"], line["queueOffset"]))
    with StoreReader.open(golden_store(name)) as reader:
        for (topic, queue_id), messages in queues.items():
            times = [time for time, _ in messages]
            first = messages[0][1]
            for time in {t + d for t in times[::7] for d in (-1, 0, 1)} | {0, 1 << 50}:
                lower = reader.offset_by_time(topic, queue_id, timestamp_ms=time)
                assert lower == first + bisect.bisect_left(times, time)
                upper = reader.offset_by_time(topic, queue_id, timestamp_ms=time, boundary="upper")
                assert upper == first + max(bisect.bisect_right(times, time) - 1, 0)


@pytest.mark.parametrize("wrong", [1, 7, 8, 15])
def test_a_unit_that_points_at_an_older_record_of_the_same_size_misleads_no_search(
    tmp_path: Path, wrong: int
) -> None:
    clock, times = SteppedClock(), []
    workers = SteppedWorkers()
    with MessageStore.open(tmp_path / "s", CONFIG, clock=clock, workers=workers) as store:
        store.create_topic("t", 1)
        for _ in range(16):
            clock.advance(0.1)
            stored = store.put(Message(topic="t", queue_id=0, body=b"x" * 50))
            times.append(stored.store_timestamp_ms)
    [path] = (tmp_path / "s/consumequeue/t/0").iterdir()
    data = bytearray(path.read_bytes())
    data[UNIT_SIZE * wrong : UNIT_SIZE * (wrong + 1)] = data[:UNIT_SIZE]
    path.write_bytes(data)
    plan = StorePlan(StoreView.open(tmp_path / "s"))
    with StoreReader.open(tmp_path / "s") as reader:
        for number, time_ms in enumerate(times):
            assert reader.offset_by_time("t", 0, timestamp_ms=time_ms) == number
            # A plan reads no more than heads: a record whose unit is wrong has no time.
            found = plan.offset_at_time(plan.queues["t", 0], time_ms)
            assert found in (number, wrong) and found <= number
