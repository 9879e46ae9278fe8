"""Full disks, failing syncs, full buffers: what is refused, and what works again afterwards."""

from __future__ import annotations

import errno
import threading

import pytest
from engine_store import LOG_FILE_SIZE, append, check_queues_match_log, record, small_config

from storage import MessageStore
from storage.clock import SystemClock
from storage.errors import StoreBusy, StoreFailed, StoreFull
from storage.files.filesystem import File, FileSystem
from storage.message import Message
from storage.reader import StoreReader
from storage.view.log.recovery_cases import Start
from storage.writer import StoreWriter


def failing_sync(monkeypatch, name):
    """Make every sync of files whose path has ``name`` in it fail from now on."""
    sync = File.sync

    def fail(file):
        if name in str(file.path):
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    monkeypatch.setattr(File, "sync", fail)


def test_a_full_disk_under_the_queues_delays_dispatch_and_loses_nothing(tmp_path, monkeypatch):
    pwrite = File.pwrite
    full = threading.Event()

    def refuse(file, data, position):
        if full.is_set() and "consumequeue" in str(file.path):
            raise StoreFull("no space left")
        pwrite(file, data, position)

    monkeypatch.setattr(File, "pwrite", refuse)
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic("t", 4)
        full.set()
        result = writer.append_batch(b"".join(record(queue_id=i % 4) for i in range(40)))
        assert not writer.wait_dispatched(result.end_commit_offset, 0.3)
        assert "no space" in writer.status().problem
        full.clear()
        assert writer.wait_dispatched(result.end_commit_offset, 10)
        assert writer.status().problem == ""
    assert check_queues_match_log(tmp_path / "store") == 40


@pytest.mark.parametrize("flush_mode", ["sync", "async"])
def test_a_topic_ends_where_its_pulls_end_while_disks_are_full_and_after(
    tmp_path, monkeypatch, flush_mode
):
    pwrite = File.pwrite
    full = threading.Event()

    def refuse(file, data, position):
        if full.is_set() and "consumequeue" in str(file.path):
            raise StoreFull("no space left")
        pwrite(file, data, position)

    monkeypatch.setattr(File, "pwrite", refuse)
    config = small_config(flush_mode=flush_mode)
    with StoreWriter.open(tmp_path / "store", config) as writer:
        writer.create_topic("t", 2)
        batch = b"".join(record(queue_id=i % 2) for i in range(250))
        end = append(writer, batch).end_commit_offset
        assert writer.wait_dispatched(end, 30)
        with StoreReader.open(tmp_path / "store") as reader:

            def pulled() -> int:
                met = 0
                while len(found := reader.pull("t", 0, queue_offset=met).queue_offsets):
                    met = found[-1] + 1
                return met

            assert pulled() == writer.describe_topic("t")[1][0][1] == 125
            full.set()
            end = append(writer, batch).end_commit_offset
            assert not writer.wait_dispatched(end, 0.3)
            assert pulled() <= writer.describe_topic("t")[1][0][1]
            full.clear()
            assert writer.wait_dispatched(end, 30)
            assert pulled() == writer.describe_topic("t")[1][0][1] == 250
            assert reader.max_offset("t", 0) == 250


@pytest.mark.parametrize("flush_mode", ["sync", "async"])
def test_a_failed_sync_ends_acknowledgements_for_good(tmp_path, monkeypatch, flush_mode):
    directory = tmp_path / "store"
    writer = StoreWriter.open(directory, small_config(flush_mode=flush_mode))
    writer.create_topic("t", 1)
    result = writer.append_batch(record())
    assert writer.wait_acknowledged(result.end_commit_offset, 10)
    heard = threading.Event()
    writer.add_ack_listener(lambda _: heard.set() if writer.failure() else None)
    with monkeypatch.context() as patch:
        failing_sync(patch, "commitlog")
        lost = writer.append_batch(record())
        if flush_mode == "sync":
            with pytest.raises(StoreFailed):
                writer.wait_acknowledged(lost.end_commit_offset, 10)
            assert writer.acknowledged_offset < lost.end_commit_offset
        assert heard.wait(10)
    with pytest.raises(StoreFailed, match="flush failed"):
        writer.append_batch(record())
    status = writer.status()
    assert not status.writable
    assert "flush failed" in status.problem
    writer.close()
    assert (directory / "abort").exists()
    with StoreWriter.open(directory, small_config()) as writer:
        assert writer.recovered.start is Start.BOUNDED
        assert writer.status().writable


def test_too_much_unflushed_is_refused_until_a_flush_made_room(tmp_path, monkeypatch):
    config = small_config(unflushed_bytes_max=2_000)
    with StoreWriter.open(tmp_path / "store", config) as writer:
        writer.create_topic("t", 1)
        log = writer._engine.log
        with monkeypatch.context() as patch:
            patch.setattr(log, "flush", lambda: log.flushed_offset)
            with pytest.raises(StoreBusy, match="wait to be flushed") as busy:
                for _ in range(100):
                    writer.append_batch(record(body=b"x" * 300))
            assert busy.value.retry_delay_ms > 0
            assert 1_600 < writer.appended_offset <= 2_000
        assert append(writer, record(body=b"x" * 300)).commit_offset > 1_600


def test_an_exhausted_pool_is_refused_at_once_and_works_again(tmp_path, monkeypatch):
    (tmp_path / "shm").mkdir()
    config = small_config(
        transient_pool=True, transient_pool_size=2, transient_pool_directory=str(tmp_path / "shm")
    )
    batch = record(body=b"x" * 30_000)
    with StoreWriter.open(tmp_path / "store", config) as writer:
        writer.create_topic("t", 1)
        log = writer._engine.log
        clock = SystemClock()
        with monkeypatch.context() as patch:
            patch.setattr(log, "commit", lambda: log.committed_offset)
            began = clock.monotonic()
            with pytest.raises(StoreBusy, match="pool"):
                for _ in range(20):
                    writer.append_batch(batch)
            assert clock.monotonic() - began < 20
            assert writer.appended_offset <= 2 * LOG_FILE_SIZE
        until = clock.monotonic() + 30
        while True:
            try:
                writer.append_batch(batch)
                break
            except StoreBusy as busy:
                assert clock.monotonic() < until, "the pool never came back"
                threading.Event().wait(busy.retry_delay_ms / 1000)


def test_threads_appending_at_once_get_distinct_queue_offsets(tmp_path):
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic("t", 2)
        taken = []

        def produce(queue_id):
            for _ in range(100):
                queue = append(writer, record(queue_id=queue_id) * 3).ranges[0]
                taken.append((queue_id, queue.first_queue_offset))

        threads = [threading.Thread(target=produce, args=(i % 2,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == [(q, first) for q in range(2) for first in range(0, 600, 3)]
    assert check_queues_match_log(tmp_path / "store") == 1_200


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
    allocate = File.allocate

    def refuse(file, position, length):
        if "shm" in str(file.path):
            raise StoreFull("no space left")
        allocate(file, position, length)

    with monkeypatch.context() as patch:
        patch.setattr(File, "allocate", refuse)
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
            FileSystem, "write_atomically", lambda *_, **__: (_ for _ in ()).throw(StoreFull("x"))
        )
        with pytest.raises(StoreFull):
            store.close()
    assert own_threads() == before
    assert not (directory / "abort").exists()
    with MessageStore.open(directory, small_config()) as store:
        assert store.reader.commit_offset("g", "t", 0, 1) == 1
