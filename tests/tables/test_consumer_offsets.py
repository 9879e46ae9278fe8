"""Group progress: a broker's file, durable when saved, owned by one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import golden_copy

from storage import MessageStore, StoreConfig
from storage.clock import SystemClock
from storage.errors import InvalidMessage, StoreLocked
from storage.files.filesystem import FileSystem
from storage.message import Message
from storage.reader import StoreReader
from storage.tables.consumer_offsets import ConsumerOffsets

CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=400, index_slot_count=5,
    index_entry_count=60,
)  # fmt: skip


def opened(store: Path) -> ConsumerOffsets:
    return ConsumerOffsets(FileSystem(), store / "config", SystemClock())


def test_progress_of_a_brokers_groups_is_read(tmp_path: Path) -> None:
    offsets = opened(golden_copy("basic", tmp_path))
    assert offsets.groups() == ["billing"]
    assert offsets.fetch_group("billing") == {"orders": {0: 212, 1: 81, 2: 169, 3: 64}}
    assert offsets.fetch("billing", "orders", 3) == 64
    assert offsets.fetch("billing", "orders", 4) is None
    assert offsets.fetch("nobody", "orders", 0) is None


def test_saved_progress_has_a_brokers_shape_and_keeps_the_version_before(tmp_path: Path) -> None:
    store = golden_copy("basic", tmp_path)
    before = (store / "config" / "consumerOffset.json").read_bytes()
    offsets = opened(store)
    assert not offsets.save()
    offsets.commit("billing", "orders", 0, 213)
    offsets.commit("new", "few", 1, 5)
    assert offsets.save()
    offsets.close()
    text = (store / "config" / "consumerOffset.json").read_text()
    assert '"orders@billing":{0:213,1:81,2:169,3:64\n\t\t}' in text
    assert '"new":["few"]' in text
    assert (store / "config" / "consumerOffset.json.bak").read_bytes() == before
    again = opened(store)
    assert again.fetch("new", "few", 1) == 5


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    store = golden_copy("basic", tmp_path)
    first, second = opened(store), opened(store)
    first.commit("g", "orders", 0, 1)
    with pytest.raises(StoreLocked):
        second.commit("g", "orders", 0, 2)
    first.close()
    assert second.fetch("g", "orders", 0) == 1
    second.commit("g", "orders", 0, 2)
    second.close()


@pytest.mark.parametrize("group", ["", "a b", "x" * 121, "gr@up", "a/b"])
def test_names_no_group_has_are_refused(tmp_path: Path, group: str) -> None:
    with pytest.raises(InvalidMessage, match="group"):
        opened(golden_copy("basic", tmp_path)).commit(group, "orders", 0, 1)


def test_a_reader_clamps_progress_into_the_queue_and_saves_when_closed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        store.put_all([Message(topic="t", body=b"x") for _ in range(10)])
        assert store.max_offset("t", 0) == 10
        reader = store.reader
        assert reader.committed_offset("g", "t", 0) is None
        assert reader.commit_offset("g", "t", 0, 7) == 7
        assert reader.commit_offset("g", "t", 0, 70) == 10
        assert reader.commit_offset("g", "t", 0, -7) == 0
        assert reader.commit_offset("g", "t", 0, 4) == 4
    with StoreReader.open(tmp_path) as reader:
        assert reader.committed_offset("g", "t", 0) == 4
        assert reader.consumer_offsets.groups() == ["g"]
