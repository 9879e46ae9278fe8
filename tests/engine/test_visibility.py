"""What a reader takes over of the writer's positions, with several threads at it and failing disks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config

from storage.message import Message
from storage.positions import CheckpointFile
from storage.reader import StoreReader
from storage.writer import StoreWriter


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[StoreWriter]:
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic("t", 1)
        yield writer


def put(writer: StoreWriter) -> None:
    writer.put([Message(topic="t", body=b"x", queue_id=0)])
    until = time.monotonic() + 20
    while writer.status().dispatched_offset < writer.appended_offset:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_a_thread_that_is_held_up_takes_nothing_back_that_another_has_shown(
    tmp_path: Path, writer: StoreWriter
) -> None:
    """Else one who was woken for a message would not find it, and wait for the next."""
    with StoreReader.open(tmp_path / "store") as reader:
        positions = reader.positions
        assert positions is not None

        class HeldUp:
            def __getattr__(self, name: str) -> Any:
                return getattr(positions, name)

            @property
            def dispatched_offset(self) -> int:
                """What was there before another thread took over more."""
                seen = positions.dispatched_offset
                if reader._visibility.positions is self:
                    reader._visibility.positions = positions
                    put(writer)
                    assert reader.visible_offset == writer.appended_offset
                return seen

        put(writer)
        reader._visibility.positions = HeldUp()  # type: ignore[assignment]
        reader._visibility.update()
        assert reader.log.visible_offset == writer.appended_offset


@pytest.mark.parametrize("changed", ["a session", "the topics"])
def test_what_could_not_be_read_is_read_by_the_next_who_looks(
    tmp_path: Path, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    with StoreReader.open(tmp_path / "store") as reader:
        writer.create_topic("new", 1)
        if changed == "a session":
            reader._visibility._session = 0
        reload = reader.topics.reload

        def fail() -> None:
            monkeypatch.setattr(reader.topics, "reload", reload)
            raise OSError("too many open files")

        monkeypatch.setattr(reader.topics, "reload", fail)
        with pytest.raises(OSError, match="too many"):
            reader._visibility.update()
        resets: list[None] = []
        monkeypatch.setattr(reader._queues, "reset", lambda: resets.append(None))
        reader._visibility.update()
        assert "new" in reader.topics
        assert len(resets) == (changed == "a session")


def test_the_durable_position_is_there_for_whoever_finds_the_checkpoint(
    tmp_path: Path, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it everything would be visible, durable or not."""
    with StoreReader.open(tmp_path / "store") as reader:
        visibility = reader._visibility
        visibility.positions = visibility._durable = None
        real = CheckpointFile.open
        found: list[bool] = []

        def opened(*arguments: Any, **options: Any) -> CheckpointFile:
            positions = real(*arguments, **options)
            load = positions.durable.load

            def loading() -> Any:
                found.append(visibility.positions is not None)
                return load()

            monkeypatch.setattr(positions.durable, "load", loading)
            return positions

        monkeypatch.setattr(CheckpointFile, "open", opened)
        visibility.update()
        assert found == [False]
