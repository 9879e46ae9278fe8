"""The demo's step with Spark: the flights' delays from the store while the services run."""

from __future__ import annotations

import importlib.util
import time
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli.demo.data import mean_delays
from cli.jobs.spark import start_session

if TYPE_CHECKING:
    from cli.demo.demo import Demo

FIELDS: Final = "carrier string, arr_delay bigint"
STREAM: Final = "delays"
CAP: Final = 100_000  # records in a batch of the stream, so that it has several


def is_set_up() -> bool:
    """Return whether Spark is installed."""
    return importlib.util.find_spec("pyspark") is not None


def read_with_spark(demo: Demo, store: Path, home: Path, topic: str) -> None:
    """Compute the mean delay by carrier in a batch and in a stream; compare both with pandas."""
    demo.step("Spark: mean arrival delay by carrier, read while the services run")
    expected = mean_delays()
    began = time.monotonic()
    spark = start_session(
        "local[2]",
        "penstock demo",
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(home),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
        },
    )
    try:
        demo.console.print(f"  a session started in {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        source = spark.read.format("penstock").option("subscribe", topic)
        rows = _means(source.load(str(store))).collect()
        _compare(demo, "batch", rows, expected, time.monotonic() - began)

        began = time.monotonic()
        stream = spark.readStream.format("penstock").options(
            subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(CAP)
        )
        query = (
            _means(stream.load(str(store)))
            .writeStream.format("memory")
            .queryName(STREAM)
            .outputMode("complete")
            .option("checkpointLocation", str(home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = spark.table(STREAM).collect()
        batches = sum(progress.numInputRows > 0 for progress in query.recentProgress)
        _compare(demo, f"stream of {batches} batches", rows, expected, time.monotonic() - began)
    finally:
        spark.stop()


def _means(messages: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

    flight = F.from_json(F.col("body").cast("string"), FIELDS)
    return (
        messages.select(flight.alias("flight"))
        .groupBy("flight.carrier")
        .agg(F.avg("flight.arr_delay").alias("delay"), F.count("*").alias("flights"))
    )


def _compare(
    demo: Demo, how: str, rows: list[Any], expected: dict[str, float], seconds: float
) -> None:
    found = {row.carrier: row.delay for row in rows}
    flights = sum(row.flights for row in rows)
    same = found.keys() == expected.keys() and all(
        isclose(found[carrier], delay, rel_tol=1e-12) for carrier, delay in expected.items()
    )
    least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    demo.check(
        f"{how}: {flights:,} flights of {len(found)} carriers in {seconds:.1f} s,"
        " each mean as pandas has it",
        same,
    )
    demo.console.print(f"    from {least} {found[least]:.1f} to {most} {found[most]:.1f} minutes")
