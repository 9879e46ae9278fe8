"""Families of metrics, and the page that Prometheus reads.

A scrape has a thread of its own and holds the interpreter like any other. So it goes on in slices of half a
millisecond with pauses between, in which the event loop has its turn: without them the loop would wait up to
5 ms each time that it has let go of the interpreter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from storage.counts import Histogram

T = TypeVar("T")
Row = tuple[Sequence[str], float]
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SERIES_MAX: Final = 10_000  # of a family by topic or group; what is beyond is one series more
REST: Final = "*"  # its name, which no topic and no group has
_SLICE: Final = 150
_PAUSE_S: Final = 0.0002


def paced(items: Iterable[T]) -> Iterator[T]:
    """Yield items, with a pause now and then."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % _SLICE == 0:
            time.sleep(_PAUSE_S)


def bounded(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Return those that have a series of their own, the first ones, and the rest."""
    return items[:SERIES_MAX], items[SERIES_MAX:]


def with_rest(rows: Sequence[Row], label_count: int) -> Sequence[Row]:
    """Return the rows that have a series of their own, and the sum of the rest as one row more."""
    some, rest = bounded(rows)
    return [*some, ((REST,) * label_count, sum(number for _, number in rest))] if rest else some


def gauge(name: str, meaning: str, value: float) -> Metric:
    """Return a family of one value."""
    return GaugeMetricFamily(name, meaning, value=value)


def gauges(name: str, meaning: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """Return a family with a value for each row of labels."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, number in paced(rows):
        family.add_metric(values, number)
    return family


def counter(name: str, meaning: str, value: float) -> Metric:
    """Return a family of one count since the start; its name ends with ``_total``."""
    return CounterMetricFamily(name, meaning, value=value)


def counters(name: str, meaning: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """Return a family with a count for each row of labels."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, number in paced(rows):
        family.add_metric(values, number)
    return family


def histogram(name: str, meaning: str, times: Histogram) -> Metric:
    """Return a family of one histogram."""
    return histograms(name, meaning, (), [((), times)])


def histograms(
    name: str,
    meaning: str,
    labels: Sequence[str],
    rows: Iterable[tuple[Sequence[str], Histogram]],
    *,
    bounds: Sequence[float] = (),
    factor: float = 1,
) -> Metric:
    """Return a family with a histogram for each row of labels.

    ``bounds`` are some of the histograms' own, none: all; values are multiplied by ``factor``.
    """
    family = HistogramMetricFamily(name, meaning, labels=labels)
    for values, times in paced(rows):
        counts = list(times.counts)
        count, buckets = 0, []
        for bound, in_bucket in zip(times.bounds, counts, strict=False):
            count += in_bucket
            if not bounds or bound in bounds:
                buckets.append((f"{bound * factor:g}", count))
        buckets.append(("+Inf", count + counts[-1]))
        family.add_metric(values, buckets, times.total * factor)
    return family


def page_of(metrics: Iterable[Metric], common: Callable[[str], str]) -> bytes:
    """Return the text of families; ``common`` gives labels that all samples of a family have, as text."""
    lines = []
    for metric in metrics:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        meaning = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {name} {meaning}\n# TYPE {name} {metric.type}\n")
        shared = common(name)
        for sample in paced(metric.samples):
            labels = [f'{label}="{escaped(value)}"' for label, value in sample.labels.items()]
            if shared:
                labels.append(shared)
            lines.append(f"{sample.name}{{{','.join(labels)}}} {+sample.value}\n")
    return "".join(lines).encode()


def escaped(value: str) -> str:
    """Return the value of a label as it is written."""
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value
