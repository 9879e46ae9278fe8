"""Which queues the newest records are of, and when that is not said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_store import record, small_config

from storage.reader import StoreReader
from storage.view.queues.arrived import ArrivedQueues
from storage.writer import StoreWriter


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Iterator[tuple[StoreWriter, StoreReader]]:
    config = small_config(commit_log_file_size=256 << 10)
    with StoreWriter.open(tmp_path, config) as writer:
        writer.create_topic("t", 3)
        writer.create_topic("u", 1)
        writer.append_batch(record())
        with StoreReader.open(tmp_path) as reader:
            writer.wait_dispatched(writer.appended_offset, 10)
            yield writer, reader


def test_the_queues_of_the_records_since_the_last_look(
    store: tuple[StoreWriter, StoreReader],
) -> None:
    writer, reader = store
    arrived = ArrivedQueues(reader.log)
    arrived.position = reader.visible_offset
    assert arrived.look(reader.visible_offset) is None  # nothing came

    writer.append_batch(record("t", 2) + record("u", 0) + record("t", 2))
    writer.wait_dispatched(writer.appended_offset, 10)
    assert arrived.look(reader.visible_offset) == {("t", 2), ("u", 0)}
    assert arrived.position == writer.appended_offset

    writer.append_batch(record("t", 1))
    writer.wait_dispatched(writer.appended_offset, 10)
    assert arrived.look(reader.visible_offset) == {("t", 1)}
