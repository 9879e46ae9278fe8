"""Exactly-once writing with Spark beside plain producers: ``python -m bench.spark_write``.

In turn, to one writer: a batch of ``--rows`` messages of 1,000 bytes saved with Spark as a staged commit;
as many produced by the client's producer, message by message; and as many in record batches that were
encoded before, which is the writer's own limit. Each ends when all of it is acknowledged. The writer
flushes as it does by default, and a staged commit is on the device when it is acknowledged, which a
plain producer's messages are not. Rates are MiB/s of records in the log.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench import drivers
from penstock import Client
from penstock.batch import RecordBatch

QUEUES: Final = 8
BODY_SIZE: Final = 1_000
BATCH: Final = 2_000  # rows of a record batch, 2 MiB
TOPIC: Final = "bench"


def with_spark(spark: Any, writer: str, rows: int) -> None:
    """Save the rows as one staged commit."""
    frame(spark, rows).write.format("penstock").options(endpoint=writer, topic=TOPIC).mode(
        "append"
    ).save()


def frame(spark: Any, rows: int) -> Any:
    """Rows as they come out of a query."""
    rest = "x" * (BODY_SIZE - 8)
    return spark.range(10_000_000, 10_000_000 + rows, 1, 4).selectExpr(
        f"concat(id, '{rest}') value"
    )


def with_producer(client: Client, rows: int) -> None:
    """Send the rows message by message."""
    body = b"x" * BODY_SIZE
    with client.producer(batch_bytes=512 << 10) as producer:
        for _ in range(rows):
            producer.send(TOPIC, body)


def encoded() -> list[bytes]:
    """Encode one batch for every queue."""
    batches = []
    for queue_id in range(QUEUES):
        batch = RecordBatch(TOPIC, queue_id=queue_id)
        batch.add_many([b"x" * BODY_SIZE] * BATCH)
        batches.append(batch.records())
    return batches


def with_batches(client: Client, batches: list[bytes], rows: int) -> None:
    """Send as many rows as record batches that are encoded already."""
    for number in range(rows // BATCH):
        client.produce_batch(batches[number % len(batches)])


def appended(client: Client, work: Callable[[], None]) -> float:
    """Return MiB/s of log that the work appended."""
    before = client.writer_status().appended_offset
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    return (client.writer_status().appended_offset - before) / took / (1 << 20)


def measure(given: argparse.Namespace) -> dict[str, list[float]]:
    """Run everything in turn, ``--rounds`` times."""
    from pipeline import build_session

    figures: dict[str, list[float]] = {}
    batches = encoded()
    with (
        drivers.scratch_store() as store,
        drivers.service("writer", store) as (writer, _),
        Client(writer=writer, timeout_s=60) as client,
    ):  # fmt: skip
        client.create_topic(TOPIC, queues=QUEUES)
        spark = build_session("local[2]", "bench", {"spark.log.level": "ERROR"})
        turns: dict[str, Callable[[], None]] = {
            "exactly once, Spark": lambda: with_spark(spark, writer, given.rows),
            "plain producer, one message at a time": lambda: with_producer(client, given.rows // 4),
            "record batches encoded before": lambda: with_batches(client, batches, given.rows),
        }
        with_spark(spark, writer, 20_000)
        for _ in range(given.rounds):
            for name, work in turns.items():
                figures.setdefault(name, []).append(appended(client, work))
            began = time.perf_counter()
            frame(spark, given.rows).write.format("noop").mode("append").save()
            took = time.perf_counter() - began
            figures.setdefault("Spark's noop sink, bodies", []).append(
                given.rows * BODY_SIZE / took / (1 << 20)
            )
        spark.stop()
    return figures


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rows", type=int, default=400_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    figures = measure(given)
    plain = statistics.median(figures["plain producer, one message at a time"])
    for name, rates in figures.items():
        median = statistics.median(rates)
        print(f"{name:<40} {median:8.0f} MiB/s   {median / plain:5.2f} x the plain producer")
    if given.json:
        given.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
