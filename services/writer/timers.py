"""The methods of penstock.v1.Timers: recalls of delayed messages, and counts of those that wait."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.v1 import timers_pb2
from services.rpc.peers import host_of_peer
from services.rpc.servicer import Context
from services.rpc.status import InvalidArgument
from services.writer.acks import Acks
from storage.format.recall_handle import decode_recall_handle
from storage.timers.worker import TimerWorker

EDGES_MAX: Final = 64


class TimerServicer:
    """Recalls are stored in a thread: the first one may make a topic."""

    def __init__(self, timers: TimerWorker, acks: Acks) -> None:
        self._timers = timers
        self._acks = acks

    async def recall(
        self, request: timers_pb2.RecallRequest, context: Context
    ) -> timers_pb2.RecallResponse:
        """Store a recall; the answer follows once it is as durable as the flush mode says."""
        handle = decode_recall_handle(request.recall_handle)
        if request.topic and request.topic != handle.topic:
            raise InvalidArgument("recall_handle", f"is of topic {handle.topic!r}")
        born_host = host_of_peer(context.peer())
        end = await asyncio.to_thread(
            lambda: self._timers.recall(
                handle.topic, handle.unique_key, handle.recall_ms, born_host=born_host
            )
        )
        if not self._acks.has(end):
            await self._acks.wait(end)
        return timers_pb2.RecallResponse(unique_key=handle.unique_key)

    async def count_timers(
        self, request: timers_pb2.CountTimersRequest, _context: Context
    ) -> timers_pb2.CountTimersResponse:
        """Return what waits, and what became of the rest since the writer's start."""
        within_ms = list(request.within_ms)
        if len(within_ms) > EDGES_MAX or within_ms != sorted(within_ms):
            raise InvalidArgument("within_ms", f"must be ascending, and at most {EDGES_MAX}")
        status = self._timers.status(within_ms)
        counts = status.counts
        return timers_pb2.CountTimersResponse(
            pending_count=status.pending_count,
            next_due_ms=status.next_due_ms or 0,
            due_counts=status.due_counts,
            delivered_count=counts.delivered,
            recalled_count=counts.recalled,
            topic_deleted_count=counts.topic_deleted,
            damaged_count=counts.damaged,
            repeated_count=counts.repeated,
        )
