"""An indexer over a store's directory, made to work step by step, and the files that it makes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.files.filesystem import FileSystem
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.view.index.index_file import IndexShape, list_index_files
from storage.view.index.key_index import KeyIndex
from storage.view.layout import StorePaths
from storage.writer import StoreWriter


def open_indexer(directory: Path, config: StoreConfig, **options: Any) -> StoreIndexer:
    options = {"filesystem": FileSystem(), "clock": SystemClock()} | options
    return StoreIndexer.open(directory, config, **options)


def put_keys(writer: StoreWriter, records: Iterable[tuple[str, ...]]) -> None:
    """Store a message with each of these sets of keys, to queue 0 of topic ``t``."""
    writer.put([Message(topic="t", body=b"x", keys=keys, queue_id=0) for keys in records])
    assert writer.wait_acknowledged(writer.appended_offset, 10)
    assert writer.wait_dispatched(writer.appended_offset, 20)


def some_keys(prefix: str, count: int, most: int) -> list[tuple[str, ...]]:
    """One key to as many as ``most`` for a record, so that files end inside of some."""
    return [("all", *(f"{prefix}{n}-{k}" for k in range(n % most))) for n in range(count)]


def work(indexer: StoreIndexer) -> None:
    """Let an indexer index all there is."""
    while indexer.step():
        pass


def offsets_found(directory: Path, key: str, config: StoreConfig) -> list[int]:
    shape = IndexShape(config.index_slot_count, config.index_entry_count)
    files = KeyIndex(FileSystem(), StorePaths(directory), shape).look()
    return files.find("t", key, count_max=5_000, begin_ms=0, end_ms=1 << 60)[0]


def paths_of(directory: Path) -> list[Path]:
    return [path for _, _, path in list_index_files(FileSystem(), directory / "index")]


def contents(directory: Path) -> list[bytes]:
    return list(index_files(directory).values())


def index_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths_of(directory)}
