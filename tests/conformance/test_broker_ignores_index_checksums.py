"""A real broker opens a store whose index has checksums, puts to it, and we go on with what it left."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config
from oracle import SMALL_FILES, oracle_ask, oracle_open

from storage.clock import SystemClock
from storage.files.filesystem import FileSystem
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.reader import StoreReader
from storage.writer import StoreWriter

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
KEYS = [f"key-{n}" for n in range(250)]


def work(store: Path) -> None:
    """Have the index checked and complete, and everything stopped in order."""
    with (
        StoreWriter.open(store, small_config()) as writer,
        StoreIndexer.open(
            store, small_config(), filesystem=FileSystem(), clock=SystemClock()
        ) as indexer,
    ):
        indexer.check_all()
        indexer.start()
        assert indexer.wait_indexed(writer.appended_offset, 30)
        assert indexer.wait_repaired(30)


def lost(store: Path) -> list[str]:
    with StoreReader.open(store) as reader:
        answers = {key: reader.query_by_key("t", key) for key in KEYS}
    return [key for key, found in answers.items() if found.record_count != 1 or found.uncovered]


def test_a_broker_finds_all_keys_and_what_it_leaves_is_no_damage(tmp_path: Path) -> None:
    store, kept = tmp_path / "store", tmp_path / "kept"
    with StoreWriter.open(store, small_config()) as writer:
        writer.create_topic("t", 1)
        writer.put([Message(topic="t", body=b"x", keys=(key,), queue_id=0) for key in KEYS])
        assert writer.wait_acknowledged(writer.appended_offset, 10)
    work(store)
    names = {path.name for path in (store / "index").iterdir()}
    assert [path.name for path in (store / "index-checksums").iterdir()] == ["table"]

    questions = [
        {"kind": "key", "topic": "t", "key": key, "max": 4, "begin": 0, "end": 1 << 60}
        for key in (KEYS[0], KEYS[120], KEYS[-1])
    ]
    answers = oracle_ask(store, questions, settings=SMALL_FILES)
    assert [len(each["answer"]["commitLogOffsets"]) for each in answers] == [1, 1, 1]

    opened = oracle_open(store, settings=SMALL_FILES, keep=kept)
    assert opened.good, (opened.report, opened.stderr[-500:])
    assert [path.name for path in (kept / "index-checksums").iterdir()] == ["table"]
    assert names <= {path.name for path in (kept / "index").iterdir()}
    assert lost(kept) == []  # before our writer has started again
    work(kept)
    assert lost(kept) == []
