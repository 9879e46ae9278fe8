"""A real broker rewrites the tables of a store of ours, and a start of ours takes what it wrote for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config
from flips import flipped
from golden import golden_copy, golden_spec
from oracle import SMALL_FILES, oracle_open

from storage import Message, MessageStore
from storage.clock import SystemClock
from storage.files.filesystem import FileSystem
from storage.format.config_json import decode_config
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.topic_table import TopicTable
from storage.view.config_tables import table_problems
from storage.writer import StoreWriter

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
FILES = FileSystem()


def topics(config: Path) -> dict[str, int]:
    return {
        topic.name: topic.queue_count
        for topic in TopicTable(FILES, config, config.parent / "journal")
    }


def test_what_a_broker_writes_is_taken_and_guarded_after_our_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "0"
    with MessageStore.open(directory, small_config()) as store:
        store.create_topic("orders", 2)
        store.create_topic("bills", 3)
        store.put_all([Message(topic="orders", body=b"x", queue_id=0) for _ in range(9)])
        assert store.max_offset("orders", 0) == 9
        store.reader.commit_offset("billing", "orders", 0, 7)
    for number in range(2):
        kept = tmp_path / f"{number + 1}"
        opened = oracle_open(directory, settings=SMALL_FILES, keep=kept)
        assert opened.good, (opened.report, opened.stderr[-500:])
        config = kept / "config"
        assert table_problems(FILES, config) == {}
        written = decode_config((config / "topics.json").read_bytes())["topicConfigTable"]
        assert topics(config).keys() == written.keys() > {"orders", "bills"}
        assert ConsumerOffsets(FILES, config, SystemClock()).fetch("billing", "orders", 0) == 7
        with StoreWriter.open(kept, small_config()) as writer:
            assert {topic.name for topic in writer.list_topics()} >= written.keys()
            writer.create_topic(f"later-{number}", 1)
        directory = kept
    assert not [each for each in caplog.records if "topics.json" in each.getMessage()]
    path = directory / "config" / "topics.json"
    whole, expected = path.read_bytes(), topics(directory / "config")
    assert expected.keys() >= {"later-0", "later-1", "orders", "bills"}
    del expected["later-1"]  # the version before does not have it
    for data in flipped(whole, range(0, 8 * len(whole), 1009)):
        path.write_bytes(data)
        assert topics(directory / "config") == expected


def test_a_brokers_own_store_goes_back_and_forth(tmp_path: Path) -> None:
    directory = golden_copy("basic", tmp_path)
    StoreWriter.open(directory).close()
    kept = tmp_path / "kept"
    opened = oracle_open(directory, settings=golden_spec("basic")["store"], keep=kept)
    assert opened.good, (opened.report, opened.stderr[-500:])
    assert table_problems(FILES, kept / "config") == {}
    written = decode_config((kept / "config" / "topics.json").read_bytes())["topicConfigTable"]
    assert topics(kept / "config").keys() == written.keys()
