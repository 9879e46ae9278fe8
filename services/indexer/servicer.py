"""The indexer's methods: how far it is, and waiting until it is far enough."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.v1 import indexer_pb2
from services import wire
from services.arrivals import Arrivals
from services.rpc.servicer import Context, Draining
from services.rpc.status import InvalidArgument
from storage.errors import StoreFailed
from storage.indexer import StoreIndexer

_LOOK_SECONDS: Final = 1.0


class IndexerServicer:
    """The methods of penstock.v1.Indexer."""

    def __init__(self, store: StoreIndexer, arrivals: Arrivals, draining: asyncio.Event) -> None:
        self._store = store
        self._arrivals = arrivals
        self._draining = draining

    async def get_indexer_status(
        self, _request: indexer_pb2.GetIndexerStatusRequest, _context: Context
    ) -> indexer_pb2.IndexerStatus:
        """Return how far the index is."""
        return self._status()

    async def wait_indexed(
        self, request: indexer_pb2.WaitIndexedRequest, _context: Context
    ) -> indexer_pb2.IndexerStatus:
        """Return once everything before the offset is found by key; the caller's deadline bounds it."""
        if request.commit_offset < 0:
            raise InvalidArgument("commit_offset", "must not be negative")
        while True:
            self._store.hurry(request.commit_offset)  # first: it changes the word
            moment = self._arrivals.moment
            if self._store.indexed_offset >= request.commit_offset:
                return self._status()
            if self._store.failure is not None:
                raise StoreFailed(self._store.problem)
            if self._draining.is_set():
                raise Draining
            await self._arrivals.wait_for_key(None, moment, _LOOK_SECONDS)

    def _status(self) -> indexer_pb2.IndexerStatus:
        return wire.message_from(
            indexer_pb2.IndexerStatus,
            self._store,
            durable_offset=max(0, self._store.durable_offset),
        )
