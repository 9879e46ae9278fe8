"""The engine's writer as the service uses it."""

from __future__ import annotations

from pathlib import Path

from services.writer.servicer import WriterStore
from storage.config import StoreConfig
from storage.writer import StoreWriter


def open_engine(directory: Path, config: StoreConfig) -> WriterStore:
    """Open a store for writing, after its recovery."""
    return StoreWriter.open(directory, config)
