"""The page as the library reads it, and pages of several processes as one."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from services.metrics import exposition
from services.metrics.exposition import (
    bounded,
    counters,
    gauge,
    gauges,
    histogram,
    histograms,
    page_of,
    with_rest,
)
from services.metrics.supervised import merged
from storage.counts import Histogram


def times(*values: float) -> Histogram:
    made = Histogram((0.001, 0.01, 1.0))
    for value in values:
        made.add(value)
    return made


FAMILIES = [
    gauge("one", "A value.", 1.5),
    gauges("many", 'With "quotes" and \\ and\na line.', ("topic",), [(("a",), 1), (('b"\\\n',), True)]),
    counters("came_total", "A count.", ("topic", "group"), [(("a", ""), 7)]),
    histogram("took_seconds", "Times.", times(0.0005, 0.01, 0.5, 3.0)),
    gauges("none", "A family without samples.", ("topic",), []),
]  # fmt: skip


class Given:
    def collect(self) -> list[Metric]:
        return FAMILIES


def samples(page: bytes) -> dict[str, set[tuple[str, tuple[tuple[str, str], ...], float]]]:
    return {
        family.name: {
            (each.name, tuple(sorted(each.labels.items())), each.value) for each in family.samples
        }
        for family in text_string_to_metric_families(page.decode())
    }


def test_the_page_says_what_the_librarys_would() -> None:
    assert samples(page_of(FAMILIES, lambda _: "")) == samples(generate_latest(Given()))  # type: ignore[arg-type]


def test_labels_in_common_are_with_every_sample() -> None:
    page = page_of(FAMILIES, lambda name: f'family="{name}"')
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            assert sample.labels["family"] in (family.name, f"{family.name}_total")


def test_a_histogram_in_other_units_has_the_buckets_that_were_asked_for() -> None:
    family = histograms(
        "latency", "In ms.", ("code",), [(("ok",), times(0.0005, 0.02, 0.5, 3.0))],
        bounds=(0.001, 1.0), factor=1e3,
    )  # fmt: skip
    found = {(each.name, each.labels.get("le")): each.value for each in family.samples}
    assert found == {
        ("latency_bucket", "1"): 1, ("latency_bucket", "1000"): 3, ("latency_bucket", "+Inf"): 4,
        ("latency_count", None): 4, ("latency_sum", None): pytest.approx(3520.5),
    }  # fmt: skip


def test_pages_of_several_processes_are_one_with_each_family_once() -> None:
    pages = [page_of(FAMILIES, lambda _, n=name: f'service="{n}"').decode() for name in ("w", "r")]  # type: ignore[misc]
    pages.append(page_of([gauge("alone", "Of one.", 1)], lambda _: 'service="i"').decode())
    page = merged(pages).decode()
    families = list(text_string_to_metric_families(page))
    assert [each.name for each in families] == [
        "one",
        "many",
        "came",
        "took_seconds",
        "none",
        "alone",
    ]
    assert page.count("# TYPE") == page.count("# HELP") == len(families)
    assert [each.labels["service"] for each in families[0].samples] == ["w", "r"]
    assert len(families[3].samples) == 2 * 6
    assert merged([]) == b""


def test_what_is_beyond_the_most_series_of_a_family_is_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exposition, "SERIES_MAX", 3)
    assert bounded([1, 2, 3]) == ([1, 2, 3], [])
    assert bounded([1, 2, 3, 4, 5]) == ([1, 2, 3], [4, 5])
    rows = [((name, "java"), 1 + place) for place, name in enumerate("abcde")]
    assert with_rest(rows[:3], 2) == rows[:3]
    assert with_rest(rows, 2) == [*rows[:3], (("*", "*"), 9)]
