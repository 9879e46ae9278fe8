"""The metrics of a process that serves calls: its collectors, and the page where they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric

from penstock.tls import identity
from services import logs, memory
from services.config.groups import RocketmqSettings
from services.config.settings import ProcessSettings
from services.metrics.calls import CallsCollector, LoopDelay
from services.metrics.endpoint import FOR_EVERYBODY, MetricsEndpoint, PageGuard
from services.metrics.exposition import counters, escaped, gauge, gauges, page_of
from services.rpc.call_counts import CallCounts

BROKER_PREFIX: Final = "rocketmq_"


class MetricsCollector(Protocol):
    """What yields families of metrics, in a thread of its own choice."""

    def collect(self) -> Iterable[Metric]:
        """Yield the families as they are now."""
        ...


class ServiceMetrics:
    """A context manager, used on the event loop; ``counts`` is None where metrics are off."""

    def __init__(
        self, service: str, settings: ProcessSettings, guard: PageGuard = FOR_EVERYBODY
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._listen = settings.metrics_listen
        self._log = logs.get_logger()
        self.counts = CallCounts() if self._listen else None
        self._shared = f'service="{service}"'
        self._of_broker = self._shared
        self._collectors: list[MetricsCollector] = []
        self._failures: dict[str, int] = {}
        self._loop_delay: LoopDelay | None = None
        self._endpoint: MetricsEndpoint | None = None
        self._is_broker = isinstance(settings, RocketmqSettings)
        if isinstance(settings, RocketmqSettings):
            cluster, node = escaped(settings.cluster_name), escaped(settings.broker_name)
            self._of_broker += f',cluster="{cluster}",node_type="broker",node_id="{node}"'

    def __enter__(self) -> ServiceMetrics:
        """Begin to serve them. Raises CannotListen."""
        if self.counts is None:
            return self
        of_python = CollectorRegistry()
        for kind in (ProcessCollector, PlatformCollector, GCCollector):
            kind(registry=of_python)
        self._loop_delay = LoopDelay()
        self.add(of_python)
        self.add(ProcessCollectors(self._settings))
        self.add(self._loop_delay)
        self.add(CallsCollector(self.counts, is_broker=self._is_broker))
        self._endpoint = MetricsEndpoint(self._listen, self.page, self._guard)
        self._loop_delay.start()
        self._log.info("metrics", address=self._endpoint.address)
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop_delay is not None:
            self._loop_delay.close()
        if self._endpoint is not None:
            self._endpoint.close()

    def add(self, collector: MetricsCollector) -> None:
        """Show what a collector yields, from the next scrape on."""
        self._collectors.append(collector)

    def refused(self, error: BaseException) -> None:
        """Count the refusal of a frame of a stream."""
        if self.counts is not None:
            self.counts.refuse(error)

    def page(self) -> bytes:
        """Return the page; for the endpoint's threads, one at a time."""
        return page_of(self._collect(), self._labels)

    def _labels(self, name: str) -> str:
        return self._of_broker if name.startswith(BROKER_PREFIX) else self._shared

    def _collect(self) -> Iterator[Metric]:
        """Yield all families; a collector that fails, as while the store is closed, is left out and counted."""
        for collector in list(self._collectors):
            name = type(collector).__name__
            try:
                yield from collector.collect()
            except Exception as error:  # noqa: BLE001  the others are read nevertheless
                if name not in self._failures:
                    self._log.warning("metrics cannot be read", collector=name, exc_info=error)
                self._failures[name] = self._failures.get(name, 0) + 1
        yield counters(
            "penstock_metrics_failures_total", "Scrapes in which a part could not be read.", ("part",),
            [((name,), count) for name, count in self._failures.items()],
        )  # fmt: skip


class ProcessCollectors:
    """What the process may use, and until when its certificate is good."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings

    def collect(self) -> Iterator[Metric]:
        """Yield the families. Raises BadTlsFile."""
        yield gauge(
            "penstock_memory_limit_bytes", "Memory that the process may use.", memory.limit_bytes()
        )
        cert, key = self._settings.tls_cert, self._settings.tls_key
        yield gauges(
            "penstock_tls_expiry_timestamp_seconds", "When the certificate of the ports expires.", (),
            [((), identity(cert, key).expires_at.timestamp())] if cert and key else [],
        )  # fmt: skip
