"""A full index file that the table of checksums does not name is removed while the indexer runs."""

from __future__ import annotations

from pathlib import Path

from engine_store import small_config

from storage import Message, MessageStore
from storage.testing import SteppedWorkers

COUNT = 1_000


def test_it_is_rebuilt_and_no_key_is_missed(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    workers = SteppedWorkers()
    with MessageStore.open(directory, small_config(), workers=workers) as store:
        store.create_topic("t", 1)
        for begin in range(0, COUNT, 100):
            keys = range(begin, begin + 100)
            store.put_all([Message(topic="t", body=b"x", keys=(f"k{n}",)) for n in keys])
            workers.settle()
        workers.step("index")
    (directory / "index-checksums/table").unlink()
    workers = SteppedWorkers()
    with MessageStore.open(directory, small_config(), workers=workers) as store:
        workers.step("index")
        files = sorted((directory / "index").iterdir())
        assert len(files) > 3
        files[1].unlink()
        store._indexer.check_all()  # the weekly look
        for _ in range(60):
            workers.step("index")

        assert sorted((directory / "index").iterdir()) == files
        found = [store.reader.query_by_key("t", f"k{n}") for n in range(0, COUNT, 7)]
        assert all(each.record_count == 1 and not each.uncovered for each in found)
