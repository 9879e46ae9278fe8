"""What is left after a start that fails, a stop that fails, and things that cross a stop."""

import errno
import threading

import pytest
from engine_store import append, check_queues_match_log, record, small_config

from storage import MessageStore
from storage.errors import StoreFailed, StoreFull, TopicNotFound
from storage.files.filesystem import OsFile, OsFileSystem
from storage.message import Message
from storage.writer import StoreWriter


def own_threads():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")}


def test_a_start_that_fails_leaves_no_thread_and_no_lock(tmp_path, monkeypatch):
    """Here the pool has no memory for the buffer of the file to go on in."""
    (tmp_path / "shm").mkdir()
    config = small_config(transient_pool=True, transient_pool_directory=str(tmp_path / "shm"))
    directory = tmp_path / "store"
    with StoreWriter.open(directory, config) as writer:
        writer.create_topic("t", 1)
        append(writer, record())
    before = own_threads()
    allocate = OsFile.allocate

    def refuse(file, position, length):
        if "shm" in str(file.path):
            raise StoreFull("no space left")
        allocate(file, position, length)

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "allocate", refuse)
        with pytest.raises(StoreFull):
            StoreWriter.open(directory, config)
    assert own_threads() == before
    with StoreWriter.open(directory, config) as writer:
        append(writer, record())
    assert check_queues_match_log(directory) == 2


def test_a_store_whose_offsets_cannot_be_saved_lets_go_of_everything_else(tmp_path, monkeypatch):
    directory = tmp_path / "store"
    before = own_threads()
    store = MessageStore.open(directory, small_config())
    store.create_topic("t", 1)
    store.put(Message(topic="t", body=b"x"))
    store.pull("t", 0, queue_offset=0)
    store.reader.commit_offset("g", "t", 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(
            OsFileSystem, "write_atomically", lambda *_, **__: (_ for _ in ()).throw(StoreFull("x"))
        )
        with pytest.raises(StoreFull):
            store.close()
    assert own_threads() == before
    assert not (directory / "abort").exists()
    with MessageStore.open(directory, small_config()) as store:
        assert store.reader.commit_offset("g", "t", 0, 1) == 1


def test_a_failed_sync_while_a_topic_is_deleted_fails_the_store(tmp_path, monkeypatch):
    """A later sync that succeeds says nothing about what the failed one was for."""
    config = small_config(queue_flush_interval_ms=60_000)
    directory = tmp_path / "store"
    writer = StoreWriter.open(directory, config)
    for name in ("t", "u"):
        writer.create_topic(name, 1)
        append(writer, record(topic=name))
    sync = OsFile.sync

    def fail(file):
        if "consumequeue" in str(file.path):
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "sync", fail)
        with pytest.raises(StoreFailed, match="Input/output"):
            writer.delete_topic("u")
    assert not writer.status().writable
    with pytest.raises(StoreFailed):
        writer.append_batch(record())
    writer.close()
    assert (directory / "abort").exists()
    with StoreWriter.open(directory, config) as writer:
        append(writer, record())
    assert list((directory / "consumequeue").iterdir()) == [directory / "consumequeue" / "t"]


def test_topics_are_deleted_and_made_again_under_load(tmp_path):
    """Nothing fails but what names a topic that is not there; the other topic loses nothing."""
    directory = tmp_path / "store"
    writer = StoreWriter.open(directory, small_config())
    for name in ("kept", "gone"):
        writer.create_topic(name, 2)
    stop = threading.Event()
    problems = []
    stored = [0]

    def produce(topic):
        while not stop.is_set():
            try:
                append(writer, record(topic=topic, queue_id=stored[0] % 2))
                if topic == "kept":
                    stored[0] += 1
                writer.describe_topic(topic)
            except TopicNotFound:
                assert topic == "gone"
            except BaseException as error:
                problems.append(error)
                raise

    threads = [threading.Thread(target=produce, args=(name,)) for name in ("kept", "gone")]
    for thread in threads:
        thread.start()
    for _ in range(20):
        writer.delete_topic("gone")
        writer.create_topic("gone", 2)
    stop.set()
    for thread in threads:
        thread.join()
    writer.delete_topic("gone")
    writer.close()
    assert problems == []
    with MessageStore.open(directory, small_config()) as store:
        assert store.writer.recovered.record_count == 0  # the stop was clean
        assert sum(store.max_offset("kept", queue_id) for queue_id in range(2)) == stored[0] > 0
