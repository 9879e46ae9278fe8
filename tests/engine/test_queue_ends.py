"""The ends of queues, kept in an array whose places are used again, beside a dictionary."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.engine import queue_ends
from storage.engine.queue_ends import Places, QueueEnds
from storage.log.batches import QueueKey

TOPICS = ("orders", "bills")
KEYS = st.tuples(st.sampled_from([name.encode() for name in TOPICS]), st.integers(0, 9))
BATCHES = st.lists(KEYS, unique=True, min_size=1, max_size=12)
STEPS = st.one_of(
    st.tuples(st.just("one"), KEYS),
    st.tuples(st.just("few"), BATCHES),
    st.tuples(st.just("many"), BATCHES),
    st.tuples(st.just("many, and a topic goes meanwhile"), BATCHES),
    st.tuples(st.just("made again"), st.sampled_from(TOPICS)),
)


class Disk:
    """What queue files end with: what was there before the start, until the topic is deleted."""

    def __init__(self) -> None:
        self.before = dict.fromkeys(TOPICS, 100)

    def next_offset(self, topic: str, queue_id: int) -> int:
        return self.before[topic] and self.before[topic] + queue_id


def ends_of(disk: Any) -> QueueEnds:
    topics: Any = dict.fromkeys(TOPICS)
    return QueueEnds(disk, topics, threading.Lock())


@given(st.lists(STEPS, max_size=30))
def test_every_queue_ends_where_its_last_record_was_put(steps: list[tuple[str, Any]]) -> None:
    disk = Disk()
    ends = ends_of(disk)
    model: dict[QueueKey, int] = {}

    def expected(keys: list[QueueKey]) -> list[int]:
        return [model.get(key, disk.next_offset(key[0].decode(), key[1])) for key in keys]

    def make_again(topic: str) -> None:
        disk.before[topic] = 0
        ends.forget_topic(topic)
        for key in [key for key in model if key[0] == topic.encode()]:
            del model[key]

    for kind, given_ in steps:
        if kind == "made again":
            make_again(given_)
            continue
        keys = [given_] if kind == "one" else given_
        places = ends.places_of(keys) if kind.startswith("many") else None
        if kind.endswith("meanwhile"):
            make_again(keys[0][0].decode())
        if kind == "one":
            assert [ends.of(given_)] == expected(keys)
            ends.move(given_, ends.of(given_), ends.of(given_) + 1, 10)
        else:
            firsts = ends.of_all(keys, places)
            assert firsts.tolist() == expected(keys)
            ends.move_all(keys, firsts, firsts + 1, [10] * len(keys), places)
        model.update(zip(keys, [end + 1 for end in expected(keys)], strict=True))


def test_queues_of_a_topic_that_is_not_there_have_no_places() -> None:
    assert ends_of(Disk()).places_of([(b"orders", 0), (b"others", 0)]) is None


def test_an_append_that_comes_between_counts() -> None:
    """Who looks on disk does not hold the lock: the queue may be met before he does."""
    looks: Any = SimpleNamespace()
    ends = ends_of(looks)

    def next_offset(_topic: str, _queue_id: int) -> int:
        ends.move((b"orders", 0), 7, 8, 10)
        return 7

    looks.next_offset = next_offset
    places = ends.places_of([(b"orders", 0)])
    assert places == Places(0, np.array([0]))
    assert ends.of_all([(b"orders", 0)], places).tolist() == [8]


def test_what_was_found_on_disk_of_a_topic_that_goes_meanwhile_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_ends, "MET_AT_ONCE", 2)
    disk = Disk()

    def next_offset(topic: str, queue_id: int) -> int:
        if queue_id == 3:
            disk.before[topic] = 0
            ends.forget_topic(topic)
        return 100

    looks: Any = SimpleNamespace(next_offset=next_offset)
    ends = ends_of(looks)
    keys = [(b"orders", queue_id) for queue_id in range(6)]
    assert ends.places_of(keys) is None
    looks.next_offset = disk.next_offset
    assert [ends.of(key) for key in keys] == [0] * 6
