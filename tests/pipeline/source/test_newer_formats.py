"""A store that newer code wrote is refused by whatever reads it, as the engine refuses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_store import change_settings, small_config
from spark_schemas import schema_of

import pipeline
from pipeline.errors import NotAStore
from pipeline.source.options import parse_options
from pipeline.source.plan import plan_messages
from pipeline.source.stream.stream import make_stream_reader, open_views
from pipeline.source.tables import parts_of
from storage import Message, MessageStore
from storage.errors import UnsupportedFormat

NO_SPARK: Any = None  # a store is looked at before the first task


Read = Callable[[str, Path], object]


def stream(store: str, _to: Path) -> object:
    given = {"store": store, "subscribe": "t", "startingOffsets": "earliest"}
    return make_stream_reader(given, schema_of("topic")).latestOffset({}, None)


def table(name: str) -> Read:
    def read(store: str, _to: Path) -> object:
        return parts_of(parse_options({"store": store, "table": name}).stores[0], name)

    return read


READS: dict[str, Read] = {
    "batch": lambda store, _: plan_messages(parse_options({"store": store})),
    "batch of a topic": lambda store, _: plan_messages(
        parse_options({"store": store, "subscribe": "t"})
    ),
    "stream": stream,
    **{name: table(name) for name in ("queues", "consumequeue", "index", "checkpoint", "files")},
    "audit": lambda store, _: pipeline.audit(NO_SPARK, store),
    "compact": lambda store, to: pipeline.compact(NO_SPARK, store, to),
    "export": lambda store, to: pipeline.export(NO_SPARK, store, to),
    "merge": lambda store, to: pipeline.merge(NO_SPARK, [store], to),
    "rebuild": lambda store, to: pipeline.rebuild(NO_SPARK, store, to),
    "replay": lambda store, to: pipeline.replay(NO_SPARK, store, ["t"], target=to),
    "split": lambda store, to: pipeline.split(NO_SPARK, store, to),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    with MessageStore.open(directory, small_config()) as opened:
        opened.create_topic("t", 1)
        opened.put(Message(topic="t", queue_id=0, body=b"x"))
    return directory


def with_newer_settings(store: Path) -> None:
    change_settings(store, formatVersion=99)


@pytest.mark.parametrize("name", READS)
def test_a_store_of_a_newer_format_is_refused(store: Path, tmp_path: Path, name: str) -> None:
    """Its files may mean something else: a format version of 99 was read by every job as if it were 1."""
    with_newer_settings(store)
    with pytest.raises(UnsupportedFormat, match="version 99"):
        READS[name](str(store), tmp_path / "to")


def test_a_store_of_a_newer_format_at_a_url_is_refused(store: Path) -> None:
    with_newer_settings(store)
    with pytest.raises(UnsupportedFormat, match=f"local://{store}/config/penstock.json"):
        plan_messages(parse_options({"store": f"local://{store}"}))


@pytest.mark.parametrize(
    "read",
    [
        lambda store: plan_messages(parse_options({"store": store})),
        lambda store: parts_of(parse_options({"store": store}).stores[0], "queues"),
        lambda store: open_views(parse_options({"store": store}, streaming=True)),
    ],
    ids=["batch", "table", "stream"],
)
def test_a_missing_store_is_named_with_its_option(
    tmp_path: Path, read: Callable[[str], object]
) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(NotAStore) as raised:
        read(str(missing))
    assert str(raised.value) == f"option 'store': {missing}: no such directory"
