"""Damage in the tables of ``config/``: nothing changes its meaning in silence, and a start makes them whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flips
import pytest
from engine_store import small_config

from storage import Message, MessageStore
from storage.format.config_json import decode_config, encode_config
from storage.reader import StoreReader
from storage.writer import StoreWriter


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed store: 283 messages in the one queue of ``orders``, of which ``billing`` has had 222."""
    root = tmp_path / "store"
    with MessageStore.open(root, small_config()) as store:
        store.create_topic("bills", 2)
        store.create_topic("orders", 1)
        store.put_all([Message(topic="orders", body=b"%d" % n) for n in range(283)])
        assert store.max_offset("orders", 0) == 283
        for offset in (100, 222):
            store.reader.commit_offset("billing", "orders", 0, offset)
            store.reader.consumer_offsets.save()
    return root


def table(directory: Path, name: str) -> Path:
    return directory / "config" / name


def change(path: Path, old: bytes, new: bytes) -> bytes:
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new))
    return data


def forget_checksums(directory: Path) -> None:
    """Leave the tables as a broker leaves them."""
    for path in (directory / "config").glob("*.checksum"):
        path.unlink()


def progress(directory: Path) -> int | None:
    with StoreReader.open(directory) as reader:
        return reader.committed_offset("billing", "orders", 0)


def wrong(directory: Path) -> list[tuple[str, str]]:
    return [(line["file"], line["message"]) for line in flips.wrong(directory)]


def test_a_bit_that_makes_222_of_a_group_into_622_costs_the_last_save(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = table(directory, "consumerOffset.json")
    change(path, b"0:222", b"0:622")
    assert progress(directory) == 100
    assert wrong(directory) == [("config/consumerOffset.json", "is damaged; its .bak is used")]
    with MessageStore.open(directory) as store:
        assert store.reader.commit_offset("another", "orders", 0, 5) == 5
    assert "consumerOffset.json: is damaged" in caplog.text
    assert progress(directory) == 100
    assert wrong(directory) == []


def test_an_offset_beyond_its_queue_where_nothing_says_what_it_was_goes_on_at_the_end(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Higher would lose what is stored next; the group misses nothing that it could still have had."""
    forget_checksums(directory)
    change(table(directory, "consumerOffset.json"), b"0:222", b"0:622")
    assert progress(directory) == 283
    ((file, message),) = wrong(directory)
    assert file == "config/consumerOffset.json"
    assert "billing" in message and "622" in message and "283" in message
    with StoreWriter.open(directory, small_config()) as writer:
        writer.put([Message(topic="orders", body=b"next")])
    assert "group billing was at 622 in queue 0 of orders, which ends at 283" in caplog.text
    assert progress(directory) == 283
    assert wrong(directory) == []


def test_a_topic_that_has_records_and_no_entry_has_one_again(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forget_checksums(directory)
    change(table(directory, "topics.json"), b"orders", b"nrders")
    found = wrong(directory)
    assert [file for file, _ in found] == ["config/topics.json"]
    assert "topic orders has records and no entry" in found[0][1]
    with MessageStore.open(directory) as store:
        assert store.writer.recovered.record_count == 0  # the start read nothing of the log
        assert {topic.name for topic in store.list_topics()} >= {"bills", "orders"}
        assert store.put(Message(topic="orders", body=b"x")).queue_offset == 283
    assert "topic orders had records and no entry" in caplog.text
    assert wrong(directory) == []


def rewrite_as_a_broker(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Replace a table as a broker does: by way of its ``.bak``, entries in another order."""
    document = decode_config(path.read_bytes())
    change(document)
    path.replace(path.with_name(path.name + ".bak"))
    path.write_bytes(encode_config(dict(reversed(document.items()))))


@pytest.mark.parametrize("times", [1, 2])
def test_what_a_broker_has_written_since_is_taken(
    directory: Path, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(times):
        rewrite_as_a_broker(
            table(directory, "consumerOffset.json"),
            lambda document: document["offsetTable"]["orders@billing"].update({0: 230}),
        )
        rewrite_as_a_broker(
            table(directory, "topics.json"),
            lambda document: document["topicConfigTable"]["bills"].update(perm=4),
        )
    assert progress(directory) == 230
    with MessageStore.open(directory) as store:
        assert {topic.name: topic.perm for topic in store.list_topics()} == {
            "bills": 4,
            "orders": 6,
        }
        assert store.reader.commit_offset("another", "orders", 0, 1) == 1
    assert progress(directory) == 230
    assert not caplog.records
