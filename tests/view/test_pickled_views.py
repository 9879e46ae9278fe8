"""What tasks of Spark are given of a store is pickled, with the place to look at and nothing that was opened."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore
from storage.view.store_plan import PlannedRange, StorePlan
from storage.view.store_view import StoreView


@pytest.fixture
def store(tmp_path: Path) -> StoreView:
    with MessageStore.open(tmp_path / "store", small_config()) as opened:
        opened.create_topic("t", 1)
        opened.put_all([Message(topic="t", body=b"%d" % n, keys=(f"k{n}",)) for n in range(50)])
    return StoreView.open(tmp_path / "store")


def test_a_queue_that_was_pickled_reads_the_same_units(store: StoreView) -> None:
    queue = store.open_queue("t", 0, 0, store.bounds.end_offset)

    again = pickle.loads(pickle.dumps(queue))

    assert (again.begin, again.end) == (queue.begin, queue.end) == (0, 50)
    assert (again.units(0, 50) == queue.units(0, 50)).all()


def test_index_files_that_were_pickled_read_the_same_entries(store: StoreView) -> None:
    [file] = store.index_files()

    again = pickle.loads(pickle.dumps(file))

    assert again.header() == file.header()
    assert (again.entries(50) == file.entries(50)).all()


def test_a_log_that_was_pickled_reads_the_same_records(store: StoreView) -> None:
    again = pickle.loads(pickle.dumps(store.log))

    assert again.record(0) == store.log.record(0) is not None


def test_pieces_of_a_plan_are_pickled(store: StoreView) -> None:
    plan = StorePlan(store)
    [queue] = plan.queues.values()
    pieces = [
        *plan.log_pieces(0, plan.bounds.end_offset, 1 << 10, None),
        *plan.queue_pieces([PlannedRange(queue, 0, 50)], 1 << 10),
    ]

    assert pickle.loads(pickle.dumps(pieces)) == pieces
