"""A look at all queues, of which there are more than a reader keeps views of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore
from storage.errors import StoreClosed
from storage.reader import StoreReader
from storage.view.queues import views

COUNT = 5


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreReader]:
    with MessageStore.open(tmp_path / "s", small_config()) as store:
        store.create_topic("wide", COUNT)
        store.put_all([Message(topic="wide", body=b"x", queue_id=n) for n in range(COUNT)])
    monkeypatch.setattr(views, "QUEUES_MAX", 2)
    with StoreReader.open(tmp_path / "s") as opened:
        yield opened


def test_it_takes_the_place_of_no_view_that_is_in_use(reader: StoreReader) -> None:
    used = [reader.queue_view("wide", queue_id) for queue_id in (1, 3)]
    extents = reader.queue_extents()
    assert [(each.queue_id, each.max_offset) for each in extents] == [(n, 1) for n in range(COUNT)]
    assert [reader.queue_view("wide", queue_id) for queue_id in (1, 3)] == used


def test_it_keeps_what_it_looked_at_where_that_fits(reader: StoreReader) -> None:
    reader._queues._kept_max = COUNT
    reader.queue_extents()
    assert len(reader._queues._kept) == COUNT


def test_it_ends_when_nobody_wants_it_any_more(reader: StoreReader) -> None:
    wanted = iter([True, True, False])
    with pytest.raises(StoreClosed):
        reader.queue_extents(is_wanted=lambda: next(wanted))
    assert next(wanted, None) is None
