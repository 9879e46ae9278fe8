"""An indexer over a store's directory, made to work step by step, and the files that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.files.filesystem import OsFileSystem
from storage.indexer import StoreIndexer
from storage.view.index.index_file import list_index_files


def open_indexer(directory: Path, config: StoreConfig, **options: Any) -> StoreIndexer:
    options = {"filesystem": OsFileSystem(), "clock": SystemClock()} | options
    return StoreIndexer.open(directory, config, **options)


def work(indexer: StoreIndexer) -> None:
    """Let an indexer index all there is."""
    while indexer.step():
        pass


def paths_of(directory: Path) -> list[Path]:
    return [path for _, _, path in list_index_files(OsFileSystem(), directory / "index")]


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in paths_of(directory)]
