"""The tables in ``config/``: one rule for the engine, the offline tools and Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.files.filesystem import FileSystem
from storage.format.config_json import encode_config
from storage.stopped.config_tables import write_configuration
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.topic_table import TopicTable
from storage.tables.topics import TopicConfig
from storage.testing import SteppedClock
from storage.view.config_tables import (
    ConfigTables,
    read_config_tables,
    topic_names,
)
from storage.view.file_sizes import FileSizes
from storage.view.layout import StorePaths

FILES = FileSystem()
SIZES = FileSizes(1 << 20, 20_000, 100, 400)


def topics(*names: str) -> bytes:
    return encode_config({"topicConfigTable": {name: {"perm": 6} for name in names}})


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"not a document",
        b"[1]",
        b'{"topicConfigTable":[1]}',
        b'{"topicConfigTable":{"a":5}}',
        b'{"topicConfigTable":{"a":{"perm":"none"}}}',
    ],
)
def test_topics_are_read_from_the_backup_of_a_table_that_cannot_be_read(
    tmp_path: Path, content: bytes | None
) -> None:
    paths = StorePaths(tmp_path)
    paths.config.mkdir()
    if content is not None:
        (paths.config / "topics.json").write_bytes(content)
    (paths.config / "topics.json.bak").write_bytes(topics("kept"))

    assert [topic.name for topic in TopicTable(FILES, paths.config, paths.journal)] == ["kept"]
    assert topic_names(FILES, paths) == {"kept"}
    assert list(read_config_tables(FILES, paths).topics) == ["kept"]


def test_offsets_of_a_broker_with_light_queues_are_read_where_there_are_no_others(
    tmp_path: Path,
) -> None:
    paths = StorePaths(tmp_path)
    paths.config.mkdir()
    (paths.config / "lmqConsumerOffset.json").write_bytes(b'{"offsetTable":{"a@b@group":{0:7}}}')

    tables = read_config_tables(FILES, paths)

    assert tables.light and tables.offsets == {("a@b", "group"): {0: 7}}
    assert ConsumerOffsets(FILES, paths.config, SteppedClock()).fetch("group", "a@b", 0) == 7


def test_what_is_written_to_a_new_store_is_what_is_read_of_it(tmp_path: Path) -> None:
    tables = ConfigTables(
        topics={
            "a": TopicConfig(
                name="a",
                read_queue_count=2,
                write_queue_count=3,
                perm=4,
                attributes={"+message.type": "NORMAL"},
                other_fields={"order": True, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 1},
            )
        },
        groups={"g": {"groupName": "g", "retryMaxTimes": 16}},
        offsets={("a", "g"): {0: 5, 1: 6}},
        delays={1: 4},
    )

    store_id = write_configuration(tmp_path, SIZES, tables, now_ms=1)

    assert read_config_tables(FILES, StorePaths(tmp_path)) == tables
    assert list(TopicTable(FILES, tmp_path / "config", tmp_path / "journal")) == list(
        tables.topics.values()
    )
    assert store_id.hex() in (tmp_path / "config" / "penstock.json").read_text()
