"""Streams from a reader service, driven as Spark drives them: offsets, caps, new queues, lost ranges."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config
from service_process import ReaderProcess
from spark_reads import put, queue_rows, schema_of
from stream_query import Query, Row

from pipeline.errors import DataLost, WrongCheckpoint
from pipeline.source.stream.stream import StreamReader, make_stream_reader
from storage import MessageStore

FILES = {"commit_log_file_size": 8 << 20, "consume_queue_file_size": 20 * 5_000}


def stream_of(reader: ReaderProcess | str, **options: Any) -> StreamReader:
    address = reader if isinstance(reader, str) else reader.address
    given = {name: str(value) for name, value in {"endpoint": address, **options}.items()}
    return make_stream_reader(given, schema_of("topic", "queueId", "queueOffset"))


def drained(query: Query, count: int) -> list[Row]:
    """Trigger until so many rows have come: an idle look does not wait for what becomes visible."""
    rows: list[Row] = []
    until = time.monotonic() + 60
    while len(rows) < count and time.monotonic() < until:
        rows += query.drain()
    return rows


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[MessageStore, ReaderProcess]]:
    """A store whose writer runs here, topic t of 3 queues, and its reader process."""
    with MessageStore.open(tmp_path / "s", small_config(**FILES)) as store:
        store.create_topic("t", 3)
        with ReaderProcess(tmp_path / "s") as reader:
            yield store, reader


Live = tuple[MessageStore, ReaderProcess]


def test_the_checkpoint_of_a_stream_of_files_serves_here_and_back(
    tmp_path: Path, live: Live
) -> None:
    """The store is known by its id, however it is reached."""
    store, reader = live
    options = {"subscribe": "t", "startingOffsets": "earliest"}
    schema = schema_of("topic", "queueId", "queueOffset")
    files = {"store": str(tmp_path / "s"), **options}
    put(store, "t", 1, 30)
    first = Query(make_stream_reader(files, schema))
    assert first.drain() == queue_rows("t", 1, 0, 30)
    put(store, "t", 1, 10)
    second = Query(stream_of(reader, **options), first.start)
    assert second.drain() == queue_rows("t", 1, 30, 40)
    put(store, "t", 1, 10)
    third = Query(make_stream_reader(files, schema), second.start)
    assert third.drain() == queue_rows("t", 1, 40, 50)


def test_a_topic_that_was_deleted_and_made_again(tmp_path: Path, live: Live) -> None:
    """The reader distinguishes it from the one before, to streams that were fed by it and by files."""
    store, reader = live
    put(store, "t", 0, 10)
    options = {"subscribe": "t", "startingOffsets": "earliest"}
    query = Query(stream_of(reader, **options))
    assert query.drain() == queue_rows("t", 0, 0, 10)
    before = query.start
    store.delete_topic("t")
    store.create_topic("t", 1)
    put(store, "t", 0, 15)
    files = make_stream_reader(
        {"store": str(tmp_path / "s"), "subscribe": "t"},
        schema_of("topic", "queueId", "queueOffset"),
    )
    for later in (query, Query(stream_of(reader, **options), before), Query(files, before)):
        with pytest.raises(DataLost, match=r"topic 't' .* was deleted and created again"):
            drained(later, 1)
    going_on = Query(stream_of(reader, failOnDataLoss="false", **options), before)
    assert drained(going_on, 15) == queue_rows("t", 0, 0, 15)
    put(store, "t", 0, 5)
    assert drained(Query(files, going_on.start), 5) == queue_rows("t", 0, 15, 20)


def test_a_stream_finds_new_topics_and_outlives_the_reader(live: Live) -> None:
    store, reader = live
    put(store, "t", 0, 50)
    query = Query(stream_of(reader, subscribePattern="t.*"))
    assert query.step() == []  # from the latest on
    put(store, "t", 0, 20)
    assert drained(query, 20) == queue_rows("t", 0, 50, 70)
    reader.kill()
    store.create_topic("tt", 1)
    put(store, "tt", 0, 30)
    restart = threading.Timer(0.4, reader.start)
    restart.start()
    assert drained(query, 30) == queue_rows("tt", 0, 0, 30)
    restart.join()


def test_another_store_at_the_address_is_refused(tmp_path: Path, live: Live) -> None:
    store, reader = live
    put(store, "t", 0, 3)
    query = Query(stream_of(reader, startingOffsets="earliest"))
    query.drain()
    with MessageStore.open(tmp_path / "other", small_config(**FILES)) as other:
        other.create_topic("t", 1)
        put(other, "t", 0, 9)
        with ReaderProcess(tmp_path / "other") as elsewhere:
            there = Query(stream_of(elsewhere, startingOffsets="earliest"), query.start)
            with pytest.raises(WrongCheckpoint):
                there.step()
