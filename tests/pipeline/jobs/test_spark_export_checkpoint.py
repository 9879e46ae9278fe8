"""Why an export keeps a manifest of its own, and does not rest on Spark's checkpoint.

A stream with ``availableNow`` into Spark's file sink does most of what an export does. What it would lose
is shown here; once a test fails, the manifest has to justify itself again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from engine_store import small_config

from pipeline import export
from storage import Message, MessageStore

COUNT = 40


class SetClock:
    """A store's clock that stands where it is put."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return 0.0


def make_store(directory: Path) -> tuple[Path, int]:
    """Fill a store, one half a day after the other; return the time at which the second begins."""
    clock = SetClock()
    with MessageStore.open(directory, small_config(), clock=clock) as store:
        store.create_topic("orders", 2)
        for number in range(COUNT):
            if number == COUNT // 2:
                clock.ms += 86_400_000
            store.put(Message(topic="orders", queue_id=number % 2, body=b"%d" % number))
    return directory, clock.ms


def stream_into(spark: Any, store: Path, out: Path, **options: Any) -> None:
    """Run what there is through Spark's file sink, by topic, and end."""
    frame = spark.readStream.format("penstock").options(
        store=str(store), subscribe="orders", **options
    )
    sink = frame.load().drop("_corrupt").writeStream.format("parquet").partitionBy("topic")
    options = {"path": str(out), "checkpointLocation": str(out.with_name("checkpoint"))}
    sink.options(**options).trigger(availableNow=True).start().awaitTermination()


def rows_for_anybody(out: Path) -> int:
    """Count what DuckDB, pandas or Arrow find in the directory."""
    return int(ds.dataset([str(path) for path in out.glob("topic=*/**/*.parquet")]).count_rows())


def kill_before_the_commit(out: Path) -> None:
    """Make of a finished batch what a driver leaves that is killed between its tasks and its commit.

    The files have their names then, and only the commit would have been written.
    """
    for directory in (out / "_spark_metadata", out.with_name("checkpoint") / "commits"):
        for path in (directory / "0", directory / ".0.crc"):
            path.unlink(missing_ok=True)


@pytest.mark.slow
def test_the_file_sink_doubles_rows_for_all_readers_but_spark(spark: Any, tmp_path: Path) -> None:
    """After a kill the batch is written again beside its first files, which only Spark leaves out."""
    store, _ = make_store(tmp_path / "store")
    out = tmp_path / "out"
    stream_into(spark, store, out, startingOffsets="earliest")
    assert rows_for_anybody(out) == COUNT
    kill_before_the_commit(out)
    stream_into(spark, store, out, startingOffsets="earliest")

    assert spark.read.parquet(str(out)).count() == COUNT
    assert rows_for_anybody(out) == 2 * COUNT  # an export has each once: test_spark_export.py


@pytest.mark.slow
def test_a_checkpoint_has_one_offset_a_queue(spark: Any, tmp_path: Path) -> None:
    """So what lies before the first run's choice never comes; an export writes it when it is chosen."""
    store, since = make_store(tmp_path / "store")
    stream_into(spark, store, tmp_path / "out", startingTimestamp=str(since))
    stream_into(spark, store, tmp_path / "out", startingOffsets="earliest")
    chosen = export(spark, store, tmp_path / "lake", since=since)
    rest = export(spark, store, tmp_path / "lake")

    assert rows_for_anybody(tmp_path / "out") == COUNT // 2
    assert (chosen.rows, rest.rows) == (COUNT // 2, COUNT // 2)
    assert rows_for_anybody(tmp_path / "lake") == COUNT
