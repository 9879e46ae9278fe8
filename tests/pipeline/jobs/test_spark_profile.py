"""Profiles: the numbers are those of a plain count over the broker's dump."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import golden_copy, golden_dump, golden_store
from new_stores import set_offsets
from typer.testing import CliRunner

from pipeline.errors import InvalidOption, NotAStore
from pipeline.jobs.profile.counts import class_floor, estimate, size_class
from pipeline.jobs.profile.job import profile
from storage import Message, MessageStore

PIECE = 1 << 16


def messages(name: str) -> list[dict[str, Any]]:
    return [line for line in golden_dump(name) if line["type"] == "message"]


def keys_in(lines: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter(
        (line["topic"], key)
        for line in lines
        for key in line["properties"].get("KEYS", "").split(" ")
        if key
    )


@pytest.mark.parametrize("exact", [False, True])
def test_a_profile_of_two_stores_counts_what_their_dumps_have(spark: Any, exact: bool) -> None:
    names = ("basic", "slow")
    found = profile(
        spark, [golden_store(name) for name in names], exact_keys=exact, top=1000, piece_bytes=PIECE
    )
    lines = [line for name in names for line in messages(name)]

    assert (found.messages, found.bytes) == (len(lines), sum(line["size"] for line in lines))
    assert {topic.topic: (topic.messages, topic.body_bytes) for topic in found.topics} == {
        topic: (
            sum(line["topic"] == topic for line in lines),
            sum(line["bodyLength"] for line in lines if line["topic"] == topic),
        )
        for topic in {line["topic"] for line in lines}
    }
    for name in names:
        counts = Counter((line["topic"], line["queueId"]) for line in messages(name))
        store = str(golden_store(name))
        mine = {(q.topic, q.queue_id): q.messages for q in found.queues if q.store == store}
        assert mine == counts
    counts = keys_in(lines)
    assert {(key.topic, key.key): key.messages for key in found.hot_keys} == dict(
        sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:1000]
    ) or found.distinct_keys > 1000
    assert found.distinct_keys == pytest.approx(len(counts), rel=0 if exact else 0.03)
    assert found.hot_keys_missed == 0
    assert sum(rate.messages for rate in found.rates) == len(lines)
    assert found.size_max == max(line["size"] for line in lines)
    assert sum(each.messages for each in found.size_classes) == len(lines)
    sizes = sorted(line["size"] for line in lines)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        true = sizes[int(np.ceil(share * len(sizes))) - 1]
        assert true <= found.size_quantiles[name] <= true * 1.1


def test_rates_are_by_interval_of_store_time(spark: Any) -> None:
    found = profile(spark, golden_store("slow"))
    counts = Counter(
        (line["topic"], line["storeTimestamp"] // found.interval_ms * found.interval_ms)
        for line in messages("slow")
    )
    assert {(rate.topic, rate.time_ms): rate.messages for rate in found.rates} == counts


def test_the_lag_of_groups_is_what_follows_their_offsets(spark: Any, tmp_path: Path) -> None:
    """Messages not yet had, since when, and those that retention removed before they were had."""
    store = golden_copy("cleaned", tmp_path)
    queues: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in messages("cleaned"):
        queues.setdefault((line["topic"], line["queueId"]), []).append(line)
    (topic, queue_id), group = max(queues.items(), key=lambda item: len(item[1]))
    group.sort(key=lambda line: line["queueOffset"])
    begin, end = group[0]["queueOffset"], group[-1]["queueOffset"] + 1
    assert begin > 5
    set_offsets(
        store,
        {
            f"{topic}@behind": {queue_id: end - 7},
            f"{topic}@gone": {queue_id: begin - 5},
            f"{topic}@done": {queue_id: end},
        },
    )
    lags = {lag.group: lag for lag in profile(spark, store).groups}

    assert (lags["behind"].lag, lags["behind"].lost) == (7, 0)
    assert lags["behind"].oldest_ms == group[-7]["storeTimestamp"]
    assert (lags["gone"].lag, lags["gone"].lost) == (end - begin, 5)
    assert (lags["done"].lag, lags["done"].oldest_ms) == (0, None)


def test_skew_names_the_fullest_queue(spark: Any, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.create_topic("t", 4)
        store.put_all([Message(topic="t", queue_id=q, body=b"x") for q in (3, 3, 3, 3, 3, 0, 1, 2)])
    (topic,) = profile(spark, tmp_path / "store").topics
    assert (topic.skew, topic.fullest_queue) == (2.5, "3")


def test_the_page_stands_by_itself_and_quotes_what_stores_hold(spark: Any, tmp_path: Path) -> None:
    """Nothing is fetched; what a key or a group is called cannot end a script or begin a tag."""
    with MessageStore.open(tmp_path / "store") as store:
        store.create_topic("t", 1)
        store.put_all([Message(topic="t", keys=("</script><img/src=x>",), body=b"x")] * 3)
    set_offsets(tmp_path / "store", {"t@<b>g": {0: 1}})
    page = profile(spark, tmp_path / "store").to_html()

    assert page.startswith("<!doctype html>") and "Plotly.newPlot" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert "</script><img" not in page and "<b>g" not in page
    assert "&lt;b&gt;g" in page


def test_the_command_prints_tables_json_and_a_page(spark: Any, tmp_path: Path) -> None:
    from cli.main import app

    runner = CliRunner()
    store = str(golden_store("basic"))
    pattern = store[:-1] + "?"
    told = runner.invoke(app, ["job", "profile", pattern, "--html", str(tmp_path / "p.html"), "-q"])
    assert told.exit_code == 0, told.output
    assert (
        "orders" in told.stdout and "Hot keys" in told.stdout and "Consumer groups" in told.stdout
    )
    assert (tmp_path / "p.html").stat().st_size > 1_000_000
    value = json.loads(runner.invoke(app, ["job", "profile", store, "--json"]).stdout)
    assert value["messages"] == len(messages("basic"))
    nowhere = runner.invoke(app, ["job", "profile", store, "--html", str(tmp_path / "no" / "p")])
    assert nowhere.exit_code == 2


def test_what_is_not_a_store_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        profile(spark, tmp_path)
    with pytest.raises(InvalidOption, match="no directory matches"):
        profile(spark, str(tmp_path / "*"))
    with pytest.raises(InvalidOption, match="option 'top'"):
        profile(spark, golden_store("slow"), top=0)


def test_size_classes_hold_the_sizes_between_their_floors() -> None:
    sizes = np.array([91, 92, 100, 1023, 1024, 1025, 4 << 20, 1], np.int64)
    for size, number in zip(sizes.tolist(), size_class(sizes).tolist(), strict=True):
        assert class_floor(number) <= size < class_floor(number + 1)


def test_distinct_keys_are_estimated_within_a_few_percent() -> None:
    from pipeline.jobs.profile.counts import REGISTERS, _note_distinct

    for count in (100, 5_000, 300_000):
        registers = np.zeros(REGISTERS, np.int8)
        hashes = np.random.default_rng(count).integers(0, 1 << 63, count, np.int64)
        _note_distinct(registers, hashes)
        _note_distinct(registers, hashes)
        assert estimate(registers) == pytest.approx(count, rel=0.05)
