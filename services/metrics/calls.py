"""Families about the calls of a process, and how late its event loop is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from services.metrics.exposition import counters, gauges, histogram, histograms
from services.metrics.names import flag
from services.rpc.call_counts import WAITING_METHODS, CallCounts
from services.rpc.servicer import snake_case
from storage.counts import Histogram

LOOK_SECONDS: Final = 1.0
_BROKER_SECONDS: Final = (1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 0.1, 1.0, 2.0, 3.0)  # a broker's buckets


class CallsCollector:
    """Calls by method and status. ``is_broker``: those of a broker, too."""

    def __init__(self, counts: CallCounts, *, is_broker: bool) -> None:
        self._counts = counts
        self._is_broker = is_broker

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        methods = [each for each in self._counts.methods if each.under_way or each.by_code]
        ended = [
            (each, code, times)
            for each in methods
            for code, times in list(each.by_code.items())
        ]  # fmt: skip
        yield histograms(
            "penstock_rpc_seconds",
            "Calls by their status, and how long they took. A stream counts when it ends.",
            ("rpc_service", "method", "code"),
            [((each.service, each.method, code), times) for each, code, times in ended],
        )
        yield gauges(
            "penstock_rpcs_under_way", "Calls and streams that have begun and not ended.",
            ("rpc_service", "method"),
            [((each.service, each.method), each.under_way) for each in methods],
        )  # fmt: skip
        yield counters(
            "penstock_refusals_total", "Calls, and frames of streams, that were refused.", ("reason",),
            [((reason,), count) for reason, count in sorted(self._counts.refusals.copy().items())],
        )  # fmt: skip
        if self._is_broker:
            yield histograms(
                "rocketmq_rpc_latency", "How long calls took, in milliseconds; streams are left out.",
                ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
                [
                    (("grpc", snake_case(each.method), code.lower(), flag(each.method in WAITING_METHODS), _result(code)), times)
                    for each, code, times in ended if not each.is_stream
                ],
                bounds=_BROKER_SECONDS, factor=1e3,
            )  # fmt: skip


class LoopDelay:
    """How much later than asked for the event loop calls back; made, started and closed on it."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look once a second from now on."""
        self._due = time.perf_counter() + LOOK_SECONDS
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self.seconds.add(max(0.0, time.perf_counter() - self._due))
        self.start()

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def collect(self) -> Iterator[Metric]:
        """Yield the family."""
        yield histogram(
            "penstock_event_loop_delay_seconds",
            "How much later than asked for the event loop calls back, looked at once a second.",
            self.seconds,
        )


def _result(code: str) -> str:
    if code == "OK":
        return "success"
    return "cancelled" if code == "CANCELLED" else "process_request_failed"
