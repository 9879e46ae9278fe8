"""The last records of the log are damaged below its durable end: they keep their places, and are named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_store import check_queues_match_log, pull_rebuilt, small_config

from storage import Message, MessageStore
from storage.offline.doctor import doctor
from storage.view.log.recovery_cases import Start

CONFIG = small_config(flush_mode="sync")


COUNT = 5


def flip_in_last(data: bytearray, begin: int, end: int) -> None:
    data[(begin + end) // 2] ^= 1


def zero_last(data: bytearray, begin: int, end: int) -> None:
    data[begin:end] = bytes(end - begin)


def cut_short(data: bytearray, begin: int, end: int) -> None:
    del data[begin + 10 :]


@pytest.mark.parametrize("damage", [flip_in_last, zero_last, cut_short])
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_the_last_record_is_a_damaged_one(
    tmp_path: Path, damage: Callable[[bytearray, int, int], None], is_killed: bool
) -> None:
    directory = tmp_path / "store"
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("t", 1)
        results = [store.put(Message(topic="t", body=b"%d" % n * 50)) for n in range(COUNT)]
        end_offset = store.writer.appended_offset
        assert store.writer.wait_dispatched(end_offset, 30)  # or no queue knows the last place
        store.writer._engine.checkpointer.checkpoint(always=True)
        if is_killed:
            shutil.copytree(directory, tmp_path / "killed")
    if is_killed:
        directory = tmp_path / "killed"
    (path,) = (each for each in (directory / "commitlog").iterdir() if int(each.name) == 0)
    data = bytearray(path.read_bytes())
    damage(data, results[-1].commit_offset, end_offset)
    path.write_bytes(data)
    named = [line for line in doctor(directory) if line["severity"] == "damage"]
    assert any(
        line["begin"] <= results[-1].commit_offset < line["end"]
        for line in named
        if "begin" in line
    )
    for place in range(2):
        with MessageStore.open(directory, CONFIG) as store:
            assert store.max_offset("t", 0) == COUNT + place
            result = pull_rebuilt(store, "t", 0, queue_offset=0)
            assert [each.queue_offset for each in result.damaged] == [COUNT - 1]
            assert result.record_count == COUNT - 1 + place
            stored = store.put(Message(topic="t", body=b"next"))
            assert stored.queue_offset == COUNT + place
            assert stored.commit_offset >= end_offset


def put(directory: Path, count: int, size: int) -> None:
    with MessageStore.open(directory, small_config()) as store:
        if not store.list_topics():
            store.create_topic("t", 1)
        for number in range(count):
            store.put(Message(topic="t", body=b"%d" % number + bytes(size), keys=("k",)))


@pytest.mark.parametrize("size", [10, 20_000], ids=["in the same file", "in later files"])
def test_records_after_an_old_checkpoint_are_kept(tmp_path: Path, size: int) -> None:
    directory = tmp_path / "store"
    put(directory, 5, size)
    old = (directory / "checkpoint").read_bytes()
    put(directory, 7, size)
    (directory / "checkpoint").write_bytes(old)
    with MessageStore.open(directory, small_config()) as store:
        assert store.writer.recovered.start is Start.BOUNDED
        assert store.put(Message(topic="t", body=b"next", keys=("k",))).queue_offset == 12
        assert store.pull("t", 0, queue_offset=0).record_count == 13
        assert store.query_by_key("t", "k", max_messages=20).record_count == 13
    assert check_queues_match_log(directory) == 13
