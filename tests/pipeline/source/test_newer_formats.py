"""A store that newer code wrote is refused by whatever reads it, as the engine refuses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_store import change_settings, small_config
from spark_reads import schema_of

import pipeline
from pipeline.errors import NotAStore
from pipeline.source.options import parse_options
from pipeline.source.plan import plan_messages
from pipeline.source.stream.stream import make_stream_reader
from pipeline.source.tables import parts_of
from storage import Message, MessageStore
from storage.errors import UnsupportedFormat

NO_SPARK: Any = None  # a store is looked at before the first task


def stream(store: str) -> object:
    given = {"store": store, "subscribe": "t", "startingOffsets": "earliest"}
    return make_stream_reader(given, schema_of("topic")).latestOffset({}, None)


READS: dict[str, Callable[[str], object]] = {
    "batch": lambda store: plan_messages(parse_options({"store": store})),
    "stream": stream,
    "table": lambda store: parts_of(parse_options({"store": store}).stores[0], "queues"),
    "job": lambda store: pipeline.audit(NO_SPARK, store),
    "batch at a URL": lambda store: plan_messages(parse_options({"store": f"local://{store}"})),
}


@pytest.mark.parametrize("name", READS)
def test_a_store_of_a_newer_format_is_refused(tmp_path: Path, name: str) -> None:
    """Its files may mean something else."""
    with MessageStore.open(tmp_path, small_config()) as opened:
        opened.create_topic("t", 1)
        opened.put(Message(topic="t", queue_id=0, body=b"x"))
    change_settings(tmp_path, formatVersion=99)
    with pytest.raises(UnsupportedFormat, match="version 99"):
        READS[name](str(tmp_path))


@pytest.mark.parametrize("name", ["batch", "stream", "table"])
def test_a_missing_store_is_named_with_its_option(tmp_path: Path, name: str) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(NotAStore) as raised:
        READS[name](str(missing))
    assert str(raised.value) == f"option 'store': {missing}: no such directory"
