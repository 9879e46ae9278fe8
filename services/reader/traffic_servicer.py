"""The method of penstock.v1.Traffic, as the reader serves it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor
from typing import Final

from penstock.v1 import traffic_pb2
from services.reader.metrics import GroupLags
from services.reader.traffic import Traffic
from services.rpc.servicer import Context

REST_RATIO: Final = 19.0
"""So many times as long as a look at the groups took nobody looks again: that is a twentieth of a core."""


class SentTrafficServicer:
    """Says what was sent, and where groups are; used on the event loop. ``thread`` is that of ``lags``."""

    def __init__(self, traffic: Traffic, lags: GroupLags, thread: Executor) -> None:
        self._traffic = traffic
        self._lags = lags
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Task[traffic_pb2.TrafficReport] | None = None
        self._looks_again_at = 0.0

    async def get_traffic(
        self, _request: traffic_pb2.GetTrafficRequest, _context: Context
    ) -> traffic_pb2.TrafficReport:
        """Return what consumers were sent since the start, and where groups are, or were a moment ago."""
        looking = self._looking
        if looking is None or (looking.done() and self._loop.time() >= self._looks_again_at):
            looking = self._looking = asyncio.create_task(self._look())
            looking.add_done_callback(_seen)
        report = traffic_pb2.TrafficReport()
        report.CopyFrom(await asyncio.shield(looking))
        report.sent.extend(
            traffic_pb2.SentTraffic(topic=topic, group=group, messages=count, bytes=size)
            for (topic, group), (count, size) in sorted(self._traffic.counts())
        )
        return report

    async def _look(self) -> traffic_pb2.TrafficReport:
        _, found = await self._loop.run_in_executor(self._thread, self._lags.look)
        self._looks_again_at = self._loop.time() + REST_RATIO * self._lags.seconds
        return traffic_pb2.TrafficReport(
            lags_at_ms=time.time_ns() // 1_000_000,
            lags=[
                traffic_pb2.GroupLag(
                    group=group, topic=topic, lag=lag.undone, leased=lag.leased, ready=lag.ready,
                    done=lag.done, oldest_ms=max(0, lag.undone_since_ms),
                )
                for (group, topic, *_), lag in found
            ],
        )  # fmt: skip


def _seen(looking: asyncio.Task[traffic_pb2.TrafficReport]) -> None:
    """Take note of how a look ended: who asked for it may have gone."""
    if not looking.cancelled():
        looking.exception()
