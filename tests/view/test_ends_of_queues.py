"""Where a queue begins and ends whose files are damaged: reader and plans answer alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_store import leave_as_a_broker_does, small_config

from storage import Message, MessageStore
from storage.reader import StoreReader
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

MESSAGES = 450  # in five queue files of 100 units; a log file holds 50


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queues") / "whole"
    with MessageStore.open(path, small_config(flush_mode="sync")) as store:
        store.create_topic("t", 1)
        for begin in range(0, MESSAGES, 50):
            store.put_all(
                [Message(topic="t", queue_id=0, body=b"x" * 700) for _ in range(begin, begin + 50)]
            )
    return path


def files_of(store: Path, directory: str) -> list[Path]:
    return sorted((store / directory).iterdir())


def lose(*numbers: int, log_files: int = 0) -> Callable[[Path], None]:
    """Remove queue files, and the oldest log files, as retention does."""

    def damage(store: Path) -> None:
        for number, file in enumerate(files_of(store, "consumequeue/t/0")):
            if number in numbers:
                file.unlink()
        for file in files_of(store, "commitlog")[:log_files]:
            file.unlink()

    return damage


@pytest.mark.parametrize("is_a_brokers", [False, True], ids=["ours", "a broker's"])
@pytest.mark.parametrize(
    ("damage", "begin", "end", "plan_begin"),
    [
        (lose(), 0, 450, 0),
        (lose(0), 100, 450, 0),
        (lose(2), 0, 450, 0),
        (lose(1, 2, 3), 0, 450, 0),
        (lose(4), 0, 400, 0),
        (lose(log_files=1), 50, 450, 50),
        (lose(2, log_files=1), 50, 450, 50),
        (lose(1, log_files=3), 200, 450, 200),
        (lose(0, 1, 3, log_files=1), 200, 450, 50),
    ],
)
def test_a_lost_file_between_others_hides_neither_those_before_nor_those_after_it(
    whole: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    begin: int,
    end: int,
    plan_begin: int,
    is_a_brokers: bool,
) -> None:
    """What a lost first or last file had a reader shows after the next start; a plan looks it up in the log."""
    store = tmp_path / "s"
    shutil.copytree(whole, store)
    damage(store)
    if is_a_brokers:
        leave_as_a_broker_does(store)
    view = StoreView.open(store)
    files = view.open_queue("t", 0, *view.bounds[:2])
    queue = StorePlan(view).queues["t", 0]
    with StoreReader.open(store) as reader:
        assert (reader.min_offset("t", 0), reader.max_offset("t", 0)) == (begin, end)
        if not is_a_brokers:
            [extent] = reader.queue_extents()
            assert (extent.min_offset, extent.max_offset) == (begin, end)
    assert (files.begin, files.end) == (begin, end)
    assert (queue.begin, queue.end) == (begin if is_a_brokers else plan_begin, MESSAGES)
