"""penstock.json, sizes found on disk, and what counts as a store."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest
from engine_store import change_settings, leave_as_a_broker_does, small_config
from flips import flipped
from golden import golden_copy, golden_spec
from open_files import descriptors_below
from steps_to_try import steps_to_try

from storage import Message, MessageStore
from storage.config import StoreConfig
from storage.errors import NotAStore
from storage.files import open_files
from storage.files.filesystem import FileSystem
from storage.offline.opened import spec_config
from storage.view.file_sizes import effective_config
from storage.view.layout import StorePaths, check_is_store, queues_of_topic, queues_on_disk
from storage.view.settings import StoreSettings, load_settings, save_settings


@pytest.mark.parametrize("name", ["basic", "slow", "cleaned", "ext", "pool", "defaults"])
def test_a_brokers_file_sizes_are_found_on_disk(tmp_path, name):
    store = golden_copy(name, tmp_path)
    spec = golden_spec(name)["store"]
    config = effective_config(FileSystem(), StorePaths(store), StoreConfig(), StoreSettings())
    assert config.commit_log_file_size == spec.get("mappedFileSizeCommitLog", 1 << 30)
    assert config.consume_queue_file_size == spec.get("mappedFileSizeConsumeQueue", 6_000_000)


def test_queues_are_directories_with_a_number_for_a_name(tmp_path):
    for name in ("a/0", "a/12", "a/lost+found", "b/3"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("7", "a/5", "b/.DS_Store"):
        (tmp_path / name).write_bytes(b"a stray file")
    assert sorted(queues_on_disk(FileSystem(), tmp_path)) == [("a", 0), ("a", 12), ("b", 3)]
    assert sorted(queues_of_topic(FileSystem(), tmp_path, "a")) == [0, 12]
    assert list(queues_of_topic(FileSystem(), tmp_path, "gone")) == []


def test_settings_read_back_and_keep_their_store_id(tmp_path):
    paths = StorePaths(tmp_path)
    config = StoreConfig(commit_log_file_size=8192, index_slot_count=7)
    saved = save_settings(FileSystem(), paths, StoreSettings(deleted_topics={"t": 9}), config)
    loaded = load_settings(FileSystem(), paths)
    assert loaded == saved
    assert len(loaded.store_id) == 16
    assert loaded.deleted_topics == {"t": 9}
    again = save_settings(FileSystem(), paths, loaded, config)
    assert again.store_id == saved.store_id
    assert effective_config(FileSystem(), paths, StoreConfig(), loaded).index_slot_count == 7


def test_no_flipped_bit_changes_what_the_settings_say(tmp_path):
    paths = StorePaths(tmp_path)
    saved = save_settings(
        FileSystem(), paths, StoreSettings(deleted_topics={"t": 900}), StoreConfig()
    )
    for path in (paths.settings, paths.config / "penstock.json.bak"):
        whole = path.read_bytes()
        for data in steps_to_try(list(flipped(whole)), 5):
            path.write_bytes(data)
            assert load_settings(FileSystem(), paths) == saved
        path.write_bytes(whole)
    for path in (paths.settings, paths.config / "penstock.json.bak"):
        path.unlink()
        assert load_settings(FileSystem(), paths) == (
            saved if "bak" not in path.name else StoreSettings()
        )


def test_a_directory_of_other_things_is_not_a_store(tmp_path):
    check_is_store(FileSystem(), tmp_path)
    check_is_store(FileSystem(), tmp_path / "missing")
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(NotAStore, match="not empty"):
        check_is_store(FileSystem(), tmp_path)
    (tmp_path / "commitlog").mkdir()
    check_is_store(FileSystem(), tmp_path)


def test_sizes_that_no_file_can_have_are_a_refusal_and_change_nothing(tmp_path):
    directory = tmp_path / "store"
    with MessageStore.open(directory, small_config()) as store:
        store.create_topic("t", 1)
        store.put(Message(topic="t", body=b"", queue_id=0))
    change_settings(directory, commitLogFileSize=-65536)
    for read_only in (False, True):
        with pytest.raises(NotAStore, match="is damaged"):
            MessageStore.open(directory, read_only=read_only)
    change_settings(directory, commitLogFileSize=65536)
    with MessageStore.open(directory) as store:
        assert [topic.name for topic in store.list_topics()] == ["t"]


@pytest.mark.parametrize("pool", [False, True])
def test_log_files_of_a_broker_need_not_be_whole_pages(tmp_path, pool):
    """A broker takes any length; files that are added have the one that is there."""
    directory = tmp_path / "store"
    made = small_config(commit_log_file_size=10_003, consume_queue_file_size=100)
    with MessageStore.open(directory, made) as store:
        store.create_topic("t", 1)
        for number in range(30):
            store.put(Message(topic="t", body=b"%d" % number * 400, queue_id=0))
    leave_as_a_broker_does(directory)
    pooled = small_config(transient_pool=pool, transient_pool_directory=str(tmp_path))
    for _ in range(2):
        with MessageStore.open(directory, pooled) as store:
            for number in range(15):
                store.put(Message(topic="t", body=b"%d" % number * 400, queue_id=0))
    files = sorted((directory / "commitlog").iterdir())
    assert [int(path.name) for path in files] == [n * 10_003 for n in range(len(files))]
    assert {path.stat().st_size for path in files} == {10_003}
    with MessageStore.open(directory, read_only=True) as store:
        assert store.pull("t", 0, queue_offset=0, max_messages=100).record_count == 60


def test_a_brokers_queue_files_hold_the_units_that_their_size_begins(tmp_path):
    """Its configuration may give any number of bytes."""
    spec = {"store": {"mappedFileSizeConsumeQueue": 1_010, "mappedFileSizeCommitLog": 100_003}}
    config = spec_config(tmp_path, spec)
    assert (config.consume_queue_file_size, config.commit_log_file_size) == (1_020, 100_003)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with settings that were written some time ago."""
    root = tmp_path / "store"
    with MessageStore.open(root, small_config()) as opened:
        for topic in ("a", "b"):
            opened.create_topic(topic, 1)
            opened.put(Message(topic=topic, body=b"body"))
    then = time.time_ns() - 10_000_000_000
    for path in (root / "config").glob("penstock.json*"):
        os.utime(path, ns=(then, then))
    return root


def test_extents_of_queues_see_a_deletion_at_once(store: Path) -> None:
    with MessageStore.open(store, small_config()) as opened:
        extents = opened.reader.queue_extents()
        assert [(extent.topic, extent.incarnation) for extent in extents] == [("a", 0), ("b", 0)]

        opened.delete_topic("a")

        assert [extent.topic for extent in opened.reader.queue_extents()] == ["b"]
        opened.create_topic("a", 1)
        opened.put(Message(topic="a", body=b"again"))
        opened.pull("a", 0, queue_offset=0)  # waits for dispatch
        again = opened.reader.queue_extents({"a"})
        assert [extent.incarnation != 0 for extent in again] == [True]


def test_queues_share_the_files_that_a_process_may_have_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files.resource, "getrlimit", lambda _kind: (64, 64))
    with MessageStore.open(tmp_path, small_config()) as store:
        store.create_topic("wide", 100)
        store.put_all([Message(topic="wide", body=b"x", queue_id=n) for n in range(100)])
        for _ in range(2):
            found = [store.pull("wide", n, queue_offset=0).record_count for n in range(100)]
            assert found == [1] * 100
        assert len(descriptors_below(tmp_path / "consumequeue")) < 64


def test_the_limit_is_raised_as_far_as_it_goes_and_shared() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = open_files.ENOUGH if hard == resource.RLIM_INFINITY else min(hard, open_files.ENOUGH)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough - 1, hard))
        open_files.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
        assert [open_files.at_most(n, share=2) for n in (400, 2_048)] == [400, 500]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"formatVersion": "x"}'])
def test_unreadable_settings_are_as_good_as_none(tmp_path, content):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "penstock.json").write_bytes(content)
    assert not load_settings(FileSystem(), StorePaths(tmp_path)).present


def test_a_start_makes_damaged_settings_whole_and_the_store_stays_the_same(tmp_path, caplog):
    directory = tmp_path / "store"
    with MessageStore.open(directory, small_config()) as store:
        store.create_topic("t", 1)
        store_id = store.reader.store_id
    path = directory / "config" / "penstock.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"storeId": "', b'"storeId": "0', 1))
    with MessageStore.open(directory) as store:
        assert store.reader.store_id == store_id
    assert path.read_bytes() == whole
    assert "penstock.json: is damaged: its checksum does not match" in caplog.text
