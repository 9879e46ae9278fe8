"""The one page of ``penstock serve``: its own families, and the pages of the services that it has started."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric

from services.metrics.endpoint import PATH
from services.metrics.exposition import counters, gauges, page_of

SERVICE: Final = "serve"
SECONDS_MAX: Final = 5.0  # for the page of a service


class SupervisedMetrics:
    """``addresses`` are where services show their pages; ``restarts`` counts how often each was started again."""

    def __init__(
        self, addresses: Mapping[str, str], restarts: Callable[[], Mapping[str, int]]
    ) -> None:
        self._addresses = addresses
        self._restarts = restarts
        self._pages = ThreadPoolExecutor(len(addresses), thread_name_prefix="penstock-metrics")
        self._of_python = CollectorRegistry()
        for kind in (ProcessCollector, PlatformCollector, GCCollector):
            kind(registry=self._of_python)

    def page(self) -> bytes:
        """Return the page; one of a service that does not answer in time is missing, and ``penstock_up`` says so."""
        pages = dict(
            zip(self._addresses, self._pages.map(_page, self._addresses.values()), strict=True)
        )
        own = page_of(self._own(pages), lambda _: "").decode()
        return merged([own, *filter(None, pages.values())])

    def _own(self, pages: Mapping[str, str]) -> Iterator[Metric]:
        for metric in self._of_python.collect():
            for place, sample in enumerate(metric.samples):
                metric.samples[place] = sample._replace(
                    labels={**sample.labels, "service": SERVICE}
                )
            yield metric
        yield gauges(
            "penstock_up", "1 where a service shows its metrics.", ("service",),
            [((service,), bool(page)) for service, page in pages.items()],
        )  # fmt: skip
        yield counters(
            "penstock_restarts_total", "How often a service that ended was started again.", ("service",),
            [((service,), count) for service, count in self._restarts().items()],
        )  # fmt: skip


def _page(address: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=SECONDS_MAX)
    try:
        connection.request("GET", PATH)
        response = connection.getresponse()
        return response.read().decode() if response.status == http.client.OK else ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def merged(pages: Iterable[str]) -> bytes:
    """Return the pages as one; their samples differ by a label."""
    families: dict[str, list[str]] = {}
    for page in pages:
        lines: list[str] = []
        is_new = False
        for line in page.splitlines(keepends=True):
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                lines = families.setdefault(name, [])
                is_new = not lines
            if is_new or not line.startswith("#"):
                lines.append(line)
    return "".join("".join(lines) for lines in families.values()).encode()
