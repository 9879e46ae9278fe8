"""The indexer on a live store: it follows, sleeps, survives kills, and hands over to itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config
from index_support import contents, offsets_found, open_indexer, put_keys, work

from storage.checkpoint.positions import CheckpointFile
from storage.errors import NotAStore, StoreClosed, StoreFull, StoreLocked
from storage.format.checkpoint import BrokerFields
from storage.format.index import IndexHeader
from storage.index.index_file import IndexFile
from storage.writer import StoreWriter

CONFIG = small_config(index_slot_count=50, index_entry_count=300, commit_log_file_size=1 << 18)


def put(writer: StoreWriter, count: int, prefix: str = "k") -> None:
    put_keys(writer, [(f"{prefix}{n}", f"all-{prefix}") for n in range(count)])


def found(directory: Path, key: str) -> list[int]:
    return offsets_found(directory, key, CONFIG)


@pytest.fixture
def writer(tmp_path):
    with StoreWriter.open(tmp_path / "store", CONFIG) as writer:
        writer.create_topic("t", 1)
        yield writer


@pytest.fixture
def directory(tmp_path, writer):
    return tmp_path / "store"


def test_every_key_is_found_across_files(writer, directory):
    put(writer, 400)
    with open_indexer(directory, CONFIG) as indexer:
        work(indexer)

        assert indexer.indexed_offset == writer.appended_offset
        assert indexer.file_count > 2
    for n in (0, 7, 150, 399):
        assert len(found(directory, f"k{n}")) == 1
    everything = found(directory, "all-k")
    assert len(everything) == 400
    assert everything == sorted(everything, reverse=True)


def test_the_thread_is_woken_by_the_writer_and_wakes_who_waits(writer, directory):
    indexer = open_indexer(directory, CONFIG)
    indexer.start()
    try:
        for round_number in range(3):
            put(writer, 5, f"r{round_number}-")

            assert indexer.wait_indexed(writer.appended_offset, 10)
            assert found(directory, f"r{round_number}-4")
        assert not indexer.wait_indexed(writer.appended_offset + 1, 0.05)
    finally:
        indexer.close()
    with pytest.raises(StoreClosed):
        indexer.step()


def test_what_is_waited_for_is_published(writer, directory, monkeypatch):
    """A reader that looks after the wait has the indexer's word on how far the index is."""
    put(writer, 3)
    end = writer.appended_offset
    writer.wait_dispatched(end, 10)
    with open_indexer(directory, CONFIG) as indexer:
        publish, seen = CheckpointFile.publish_indexed, []

        def noted(checkpoint, commit_offset):
            seen.append((commit_offset, indexer.indexed_offset >= commit_offset))
            publish(checkpoint, commit_offset)

        monkeypatch.setattr(CheckpointFile, "publish_indexed", noted)
        work(indexer)
        assert seen[-1] == (end, False)
        assert indexer.indexed_offset == end


def test_a_clean_stop_indexes_the_rest_and_the_next_start_goes_on_after_it(writer, directory):
    put(writer, 100)
    open_indexer(directory, CONFIG).close()
    before = contents(directory)
    assert len(found(directory, "all-k")) == 100

    with open_indexer(directory, CONFIG) as indexer:
        indexer.step()
        assert contents(directory) == before
        put(writer, 100, "later")
        work(indexer)

    assert len(found(directory, "all-k")) == len(found(directory, "all-later")) == 100


def test_a_full_file_raises_the_brokers_mark(writer, directory):
    put(writer, 160)
    with open_indexer(directory, CONFIG) as indexer:
        work(indexer)
    first, second = (IndexHeader.decode(data) for data in contents(directory)[:2])

    fields = BrokerFields.decode((directory / "checkpoint").read_bytes()[:40])

    assert first.next_entry == 300 and second.next_entry > 1
    assert fields.index_timestamp_ms == first.end_timestamp_ms


def test_the_disk_may_fill_and_nothing_is_put_twice(writer, directory, monkeypatch):
    put(writer, 200)
    create, failures = IndexFile.create, iter([True, False, True, True])

    def create_or_fail(*arguments, **keywords):
        if next(failures, False):
            raise StoreFull("no space left")
        return create(*arguments, **keywords)

    monkeypatch.setattr(IndexFile, "create", create_or_fail)
    indexer = open_indexer(directory, CONFIG)
    refused = 0
    while True:
        try:
            if not indexer.step():
                break
        except StoreFull:
            refused += 1
    indexer.close()

    assert refused == 3
    assert len(found(directory, "all-k")) == 200


def test_only_one_indexer_has_a_directory(writer, directory):
    with open_indexer(directory, CONFIG), pytest.raises(StoreLocked):
        open_indexer(directory, CONFIG)


def test_a_directory_without_a_writer_is_refused(tmp_path):
    with pytest.raises(NotAStore, match="writer"):
        open_indexer(tmp_path, CONFIG)
