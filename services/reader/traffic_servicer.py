"""The method of penstock.v1.Traffic, as the reader serves it."""

from __future__ import annotations

import asyncio

from penstock.v1 import traffic_pb2
from services.loops import shielded
from services.reader.metrics import GroupLags
from services.reader.traffic import Traffic
from services.rpc.servicer import Context


class SentTrafficServicer:
    """Says what was sent, and where groups are; used on the event loop."""

    def __init__(self, traffic: Traffic, lags: GroupLags) -> None:
        self._traffic = traffic
        self._lags = lags

    async def get_traffic(
        self, _request: traffic_pb2.GetTrafficRequest, _context: Context
    ) -> traffic_pb2.TrafficReport:
        """Return what consumers were sent since the start, and where groups are, or were a moment ago."""
        seen = await shielded(asyncio.wrap_future(self._lags.latest()))
        return traffic_pb2.TrafficReport(
            sent=[
                traffic_pb2.SentTraffic(topic=topic, group=group, messages=count, bytes=size)
                for (topic, group), (count, size) in sorted(self._traffic.counts())
            ],
            lags_at_ms=seen.at_ms,
            lags=[
                traffic_pb2.GroupLag(
                    group=group, topic=topic, lag=lag.undone, leased=lag.leased, ready=lag.ready,
                    done=lag.done, oldest_ms=max(0, lag.undone_since_ms),
                )
                for (group, topic, *_), lag in seen.lags
            ],
        )  # fmt: skip
