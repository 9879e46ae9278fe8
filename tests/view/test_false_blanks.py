"""A blank ends a file only where its length says so: what looks like one elsewhere hides nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from engine_store import pull_rebuilt, small_config

from storage import Message, MessageStore
from storage.format.record_layout import MAGIC_BLANK
from storage.view.log.end import end_of_log
from storage.view.store_view import StoreView

COUNT = 400  # more than one log file


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path, small_config()) as store:
        store.create_topic("t", 1)
        messages = [Message(topic="t", body=b"%0200d" % n, keys=(f"k{n}",)) for n in range(COUNT)]
        for begin in range(0, COUNT, 100):
            store.put_all(messages[begin : begin + 100])
    (tmp_path / "checkpoint").unlink()
    return tmp_path


def put_blank(directory: Path, commit_offset: int, size: int) -> None:
    """Write the head of a blank over that of a record."""
    files = {int(path.name): path for path in (directory / "commitlog").iterdir()}
    start = max(begin for begin in files if begin <= commit_offset)
    with files[start].open("r+b") as file:
        file.seek(commit_offset - start)
        file.write(struct.pack(">iI", size, MAGIC_BLANK))


@pytest.mark.parametrize(
    ("hit", "size"), [(3, 300), (3, (1 << 31) - 1), (COUNT - 5, 8), (COUNT - 5, (1 << 31) - 1)]
)
def test_records_after_a_false_blank_are_served(store: Path, hit: int, size: int) -> None:
    with MessageStore.open(store, small_config()) as opened:
        records = opened.pull("t", 0, queue_offset=hit, max_messages=1).slices
        commit_offset = int.from_bytes(records[0][28:36], "big")
        end_offset = opened.status().appended_offset
    (store / "checkpoint").unlink()
    for name in ("index", "consumequeue"):
        (store / name).rename(store / f"lost-{name}")
    put_blank(store, commit_offset, size)

    assert end_of_log(StoreView(store).log) == end_offset
    with MessageStore.open(store, small_config()) as opened:
        pulled = pull_rebuilt(opened, "t", 0, queue_offset=0, max_messages=COUNT, max_bytes=1 << 24)
        assert pulled.queue_offsets == tuple(n for n in range(COUNT) if n != hit)
        assert [damage.queue_offset for damage in pulled.damaged] == [hit]
        opened.put(Message(topic="t", body=b"own"))  # a query waits until own puts are in the index
        assert opened.query_by_key("t", f"k{hit + 1}").record_count == 1
