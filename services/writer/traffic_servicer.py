"""The method of penstock.v1.Traffic, as the writer serves it."""

from __future__ import annotations

import asyncio

from penstock.v1 import traffic_pb2
from services.rpc.servicer import Context
from storage.writer import StoreWriter


class StoredTrafficServicer:
    """Says what was appended."""

    def __init__(self, store: StoreWriter) -> None:
        self._store = store

    async def get_traffic(
        self, _request: traffic_pb2.GetTrafficRequest, _context: Context
    ) -> traffic_pb2.TrafficReport:
        """Return what was appended since the start, by topic."""
        appended = await asyncio.to_thread(self._store.counts.appended)
        return traffic_pb2.TrafficReport(
            stored=[
                traffic_pb2.StoredTraffic(topic=topic.decode(), messages=count, bytes=size)
                for topic, (count, size) in sorted(appended.items())
            ]
        )
