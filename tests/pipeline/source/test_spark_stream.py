"""Streams in Spark itself: triggers, restarts, progress, what users see when something is wrong."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden import golden_store
from spark_reads import put, queue_rows

from storage import MessageStore

WAIT_S = 60


def load(spark: Any, store: Path | str, **options: Any) -> Any:
    given = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("penstock").options(**given).load(str(store))


class Sink:
    """Collects what each batch had."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns or ("topic", "queueId", "queueOffset")
        self.batches: dict[int, list[tuple[Any, ...]]] = {}

    def __call__(self, df: Any, batch: int) -> None:
        self.batches[batch] = [tuple(row) for row in df.select(*self.columns).collect()]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for batch in self.batches.values() for row in batch]


def start(df: Any, sink: Sink, checkpoint: Path, **trigger: Any) -> Any:
    writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def run(df: Any, checkpoint: Path, *columns: str, **trigger: Any) -> Sink:
    """Run a query to its end; one that fails raises."""
    sink = Sink(*columns)
    query = start(df, sink, checkpoint, **(trigger or {"availableNow": True}))
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()
    return sink


def until(condition: Callable[[], bool], query: Any) -> None:
    for _ in range(WAIT_S * 20):
        if condition():
            return
        assert query.isActive, query.exception()
        threading.Event().wait(0.05)
    raise AssertionError("nothing came")


def test_available_now_with_a_cap_and_a_restart(
    spark: Any, live: MessageStore, tmp_path: Path
) -> None:
    """Several batches under the cap, an end, and a second run that takes only what is new."""
    for queue_id in range(3):
        put(live, "t", queue_id, 30)
    options = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    sink = run(load(spark, tmp_path / "s", **options), tmp_path / "c")
    assert [len(sink.batches[batch]) for batch in sorted(sink.batches)] == [40, 40, 10]
    assert sorted(sink.rows) == [row for n in range(3) for row in queue_rows("t", n, 0, 30)]
    put(live, "t", 1, 5)
    sink = run(load(spark, tmp_path / "s", **options), tmp_path / "c")
    assert sink.rows == queue_rows("t", 1, 30, 35)
    assert run(load(spark, tmp_path / "s", **options), tmp_path / "c").rows == []


def test_once_takes_everything_whatever_the_cap(
    spark: Any, live: MessageStore, tmp_path: Path
) -> None:
    put(live, "t", 0, 30)
    df = load(spark, tmp_path / "s", startingOffsets="earliest", maxOffsetsPerTrigger=7)
    sink = run(df, tmp_path / "c", once=True)
    assert [len(batch) for batch in sink.batches.values()] == [30]


def test_continuous_processing_is_refused(spark: Any, live: MessageStore, tmp_path: Path) -> None:
    df = load(spark, tmp_path / "s", subscribe="t")
    with pytest.raises(Exception, match=r"(?i)continuous"):
        df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).trigger(
            continuous="1 second"
        ).start().awaitTermination(WAIT_S)


def test_a_running_stream_follows_the_writer_and_reports_its_progress(
    spark: Any, live: MessageStore, tmp_path: Path
) -> None:
    """From the latest on, with new topics; start, end and latest offsets are in lastProgress."""
    put(live, "t", 0, 30)
    sink = Sink()
    df = load(spark, tmp_path / "s", subscribePattern="t|new", maxOffsetsPerTrigger=4)
    query = start(df, sink, tmp_path / "c", processingTime="100 milliseconds")
    try:
        until(lambda: 0 in sink.batches, query)
        put(live, "t", 1, 10)
        live.create_topic("new", 1)
        put(live, "new", 0, 5)
        until(lambda: len(sink.rows) == 15, query)
        until(lambda: not query.status["isDataAvailable"], query)
        reports = [report for report in query.recentProgress if report["numInputRows"]]
    finally:
        query.stop()
    assert Counter(row[0] for row in sink.rows) == {"t": 10, "new": 5}
    assert all(len(batch) <= 4 for batch in sink.batches.values())
    source = reports[0]["sources"][0]
    name = str(tmp_path / "s")
    began, ended, latest = (
        _json(source[field])["stores"][name]["queues"]
        for field in ("startOffset", "endOffset", "latestOffset")
    )
    assert began == {"t": {"0": 30}}
    assert sum(ended["t"].values()) - 30 + ended.get("new", {"0": 0})["0"] == 4
    assert latest["t"]["1"] > 0 or latest["new"]["0"] > 0


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def test_a_users_schema_and_several_stores(spark: Any, tmp_path: Path) -> None:
    stores = [str(golden_store("basic")), str(golden_store("slow"))]
    given = spark.readStream.format("penstock").schema("store string, physicalOffset bigint")
    stream = given.option("startingOffsets", "earliest").load(json.dumps(stores))
    batch = spark.read.format("penstock").load(json.dumps(stores))
    sink = run(stream, tmp_path / "c", "store", "physicalOffset")
    assert sorted(sink.rows) == sorted(map(tuple, batch.select(*sink.columns).collect()))
