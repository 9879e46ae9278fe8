"""What a job writes of a store that nobody has open."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore
from storage.stopped.checkpoint import checkpoint_index, write_checkpoint
from storage.stopped.config_tables import write_configuration
from storage.stopped.files import (
    make_log_files,
    remove_files,
    write_log,
    write_queue,
)
from storage.view.store_view import StoreView

UNIT = 20


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of ours with 100 messages and keys, stopped in order."""
    root = tmp_path / "store"
    with MessageStore.open(root, small_config()) as opened:
        opened.create_topic("t", 2)
        opened.put_all([Message(topic="t", body=b"%d" % n, keys=(f"k{n}",)) for n in range(100)])
    return root


def test_the_checkpoint_of_a_new_store_is_that_of_one_which_was_stopped_in_order(
    store: Path,
) -> None:
    """The writer and the indexer go on from it without a look at the files."""
    before = StoreView.open(store)
    end, named = before.bounds.end_offset, before.checkpoint.durable
    tables, sizes = before.config_tables(), before.sizes
    (store / "checkpoint").unlink()
    (store / "config" / "penstock.json").unlink()

    store_id = write_configuration(store, sizes, tables, now_ms=1)
    write_checkpoint(store, store_id=store_id, end_offset=end, last_timestamp_ms=7)

    after = StoreView.open(store)
    assert after.bounds == before.bounds
    assert after.stated_bounds() == after.bounds
    assert after.checkpoint.durable_index.indexed_offset == end
    assert (
        after.checkpoint.durable.store_id == store_id == after.settings.store_id != named.store_id
    )
    with MessageStore.open(store, small_config()) as opened:
        assert opened.pull("t", 0, queue_offset=0, max_messages=99).record_count == 50
        assert opened.query_by_key("t", "k7").record_count == 1


def test_an_index_that_was_made_again_is_named_in_the_checkpoint(store: Path) -> None:
    end = StoreView.open(store).bounds.end_offset

    checkpoint_index(StoreView.open(store), end - 1)

    assert StoreView.open(store).checkpoint.durable_index.indexed_offset == end - 1
    assert StoreView.open(store).stated_bounds() == StoreView.open(store).bounds
    checkpoint_index(StoreView.open(store), end)
    assert StoreView.open(store).checkpoint.durable_index.indexed_offset == end


def test_nothing_is_said_of_an_index_in_the_checkpoint_of_a_broker(store: Path) -> None:
    path = store / "checkpoint"
    page = bytearray(path.read_bytes())
    page[:8] = (1).to_bytes(8, "big")
    path.write_bytes(page)

    checkpoint_index(StoreView.open(store), 5)

    assert path.read_bytes() == page


def test_units_are_written_across_files_by_several_tasks(tmp_path: Path) -> None:
    """Each makes the files that it needs; none undoes what another has written."""
    queue, file_size = tmp_path / "t" / "0", 10 * UNIT
    units = [bytes([n + 1]) * UNIT for n in range(200)]

    def write(first: int) -> None:
        write_queue(queue, first, b"".join(units[first : first + 7]), file_size)

    for _ in range(5):
        with ThreadPoolExecutor(8) as tasks:
            list(tasks.map(write, range(0, 200, 7)))
        files = sorted(queue.iterdir())
        assert [file.stat().st_size for file in files] == [file_size] * 20
        assert b"".join(file.read_bytes() for file in files) == b"".join(units)
        remove_files(queue)
        assert list(queue.iterdir()) == []


def test_log_files_hold_what_is_written_at_its_offset(tmp_path: Path) -> None:
    make_log_files(tmp_path, 2 * 4096 + 1, 4096)

    write_log(tmp_path, 4096 + 100, b"here", 4096)

    files = sorted((tmp_path / "commitlog").iterdir())
    assert [int(file.name) for file in files] == [0, 4096, 8192]
    content = b"".join(file.read_bytes() for file in files)
    assert content == bytes(4196) + b"here" + bytes(3 * 4096 - 4200)
