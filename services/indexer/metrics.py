"""Families about the indexer: how far the index is, its files, and damage."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from services.metrics.exposition import counter, gauge, gauges
from storage.indexer import StoreIndexer


class IndexerCollector:
    """Reads what the indexer says of itself."""

    def __init__(self, store: StoreIndexer) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        store = self._store
        yield gauges(
            "penstock_index_offset_bytes", "Positions of the index in the log.", ("position",),
            [
                (("confirmed",), store.confirm_offset), (("indexed",), store.indexed_offset),
                (("durable",), max(0, store.durable_offset)),
            ],
        )  # fmt: skip
        yield gauge("penstock_index_files", "Index files.", store.file_count)
        yield gauge("penstock_index_entries", "Entries in them.", store.key_count)
        yield counter(
            "penstock_index_damaged_files_total",
            "Files that were damaged or missing, and are rebuilt.",
            store.damaged_count,
        )
        yield gauge("penstock_index_stopped", "1 while nothing is indexed.", bool(store.problem))
