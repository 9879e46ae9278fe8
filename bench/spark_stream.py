"""A stream beside a producer: does it keep up, and how late is each message: ``python -m bench.spark_stream``.

A producer in a process of its own appends ``--rate`` MB/s to a store for ``--seconds``; meanwhile a query
with a trigger of ``--trigger`` reads every column into Spark's noop sink. Some short turns come before,
until Java has compiled what it runs: the first batch of a new session takes some 4 s. Latency is from a
message's storeTimestamp to the end of the batch that had it, with Spark's own bookkeeping; of each batch
21 quantiles are taken. Memory is that of the driver, its Java and the Python workers.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bench.resident import PeakMemory
from bench.spark_read import BATCH, QUEUES, SHARES, batches_of
from storage.store import MessageStore

MB: Final = 1_000_000
QUANTILES: Final = 20
WARM_UPS: Final = 4
WARM_UP_S: Final = 0.5
CATCH_UP_S: Final = 60.0


def produce(directory: Path, rate: float) -> None:
    """For each line that comes in, append at an even rate for so many seconds; tell what was."""
    with MessageStore.open(directory) as store:
        for topic in range(len(SHARES)):
            store.create_topic(f"topic{topic}", QUEUES)
        rng = random.Random(11)
        made = batches_of(rng)
        batches, weights = [*made.values()], [SHARES[topic] for topic, _ in made]
        print("ready", flush=True)
        for line in sys.stdin:
            seconds = float(line)
            began, written, count, behind = time.perf_counter(), 0, 0, 0.0
            while (now := time.perf_counter() - began) < seconds:
                due = now * rate * MB
                if written >= due:
                    time.sleep(0.001)
                    continue
                behind = max(behind, (due - written) / (rate * MB))
                batch = rng.choices(batches, weights)[0]
                store.put_batch(batch)
                written, count = written + len(batch), count + BATCH
            took = time.perf_counter() - began
            told = {"bytes": written, "records": count, "seconds": took, "behind_s": behind}
            print(json.dumps(told), flush=True)


class AppendingProcess:
    """The process that appends."""

    def __init__(self, store: Path, rate: float) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "bench.spark_stream", "--produce", "--store", str(store),
                "--rate", str(rate),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def produce(self, seconds: float) -> dict[str, Any]:
        """Append for so long; return what was appended."""
        print(seconds, file=self.process.stdin, flush=True)
        produced: dict[str, Any] = json.loads(self._answer())
        return produced

    def stop(self) -> None:
        """End, with the store closed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Reports:
    """What Spark reported of every batch; it keeps the newest hundred itself."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self.found: dict[int, dict[str, Any]] = {}

    def wait_for(self, records: int) -> float:
        """Wait until so many records have been read in all; return the seconds that it took."""
        began = time.perf_counter()
        while sum(report["numInputRows"] for report in self.found.values()) < records:
            time.sleep(0.05)
            assert self._query.isActive, self._query.exception()
            assert time.perf_counter() - began < CATCH_UP_S, "the stream does not catch up"
            self.found |= {
                report["batchId"]: json.loads(report.json) for report in self._query.recentProgress
            }
        return time.perf_counter() - began


def latencies(reports: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return latency in seconds and how many records had it."""
    found = []
    for report in reports:
        seen = report["observedMetrics"]["seen"]
        began = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00")).timestamp()
        ended = began + report["durationMs"]["triggerExecution"] / 1000
        stored = seen["stored"]
        found += [(ended - each / 1000, seen["records"] / len(stored)) for each in stored]
    return sorted(found)


def quantile(values: list[tuple[float, float]], part: float) -> float:
    """Return the weighted quantile of sorted values."""
    wanted, seen = part * sum(weight for _, weight in values), 0.0
    for value, weight in values:
        seen += weight
        if seen >= wanted:
            return value
    return values[-1][0]


def main() -> None:
    """Measure and print; ``--json`` keeps what each batch took."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--store", type=Path, default=Path(".bench-spark-stream"))
    arguments.add_argument("--rate", type=float, default=100.0, help="MB/s")
    arguments.add_argument("--seconds", type=float, default=30.0)
    arguments.add_argument("--trigger", default="1 second")
    arguments.add_argument(
        "--option", action="append", default=[], help="of the format: NAME=VALUE"
    )
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--produce", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.produce:
        produce(given.store, given.rate)
        return
    shutil.rmtree(given.store, ignore_errors=True)
    try:
        measure(given)
    finally:
        shutil.rmtree(given.store, ignore_errors=True)
        shutil.rmtree(given.store.with_suffix(".checkpoint"), ignore_errors=True)


def measure(given: argparse.Namespace) -> None:
    """Run producer and query together: a few short turns until all is compiled, then the long one."""
    from pipeline import build_session

    producer = AppendingProcess(given.store, given.rate)
    spark = build_session("local[2]", "penstock stream bench", {"spark.log.level": "ERROR"})
    memory = PeakMemory(without=producer.process.pid)
    options = dict(option.split("=", 1) for option in given.option)
    reader = spark.readStream.format("penstock").options(**{"subscribePattern": ".*", **options})
    query = start(reader.load(str(given.store.resolve())), given)
    while not query.recentProgress:
        time.sleep(0.1)
    reports, records = Reports(query), 0
    for _ in range(WARM_UPS):
        records += producer.produce(WARM_UP_S)["records"]
        reports.wait_for(records)
    cold = set(reports.found)
    with memory:
        told = producer.produce(given.seconds)
        caught_up = reports.wait_for(records + told["records"])
    query.stop()
    producer.stop()
    read = [r for batch, r in reports.found.items() if batch not in cold and r["numInputRows"]]
    show(told, read, caught_up, memory)
    if given.json:
        given.json.write_text(json.dumps({"produced": told, "batches": read}))
    spark.stop()


def start(df: Any, given: argparse.Namespace) -> Any:
    """Start the query: all columns into nothing, store times seen on the way."""
    places = ", ".join(str(number / QUANTILES) for number in range(QUANTILES + 1))
    from pyspark.sql import functions as F  # noqa: N812

    seen = df.observe(
        "seen",
        F.count(F.lit(1)).alias("records"),
        F.expr(f"approx_percentile(unix_millis(storeTimestamp), array({places}))").alias("stored"),
    )
    writer = seen.writeStream.format("noop").trigger(processingTime=given.trigger)
    return writer.option(
        "checkpointLocation", str(given.store.with_suffix(".checkpoint").resolve())
    ).start()


def show(
    told: dict[str, Any], reports: list[dict[str, Any]], caught_up: float, memory: PeakMemory
) -> None:
    """Print the figures beside what is wanted."""
    late = latencies(reports)
    rate = told["bytes"] / MB / told["seconds"]
    durations = sorted(report["durationMs"]["triggerExecution"] for report in reports)
    print(
        f"produced            {told['records']} records, {rate:.1f} MB/s for {told['seconds']:.0f} s,"
        f" never more than {told['behind_s']:.2f} s behind that rate"
    )
    print(f"all read            {caught_up:.2f} s after the last was appended")
    print(f"latency             p50 {quantile(late, 0.5):.2f} s  p99 {quantile(late, 0.99):.2f} s"
          f"  most {late[-1][0]:.2f} s  (wanted: p99 below 2.5 s)")  # fmt: skip
    print(
        f"batches             {len(reports)}, each {durations[len(durations) // 2]} ms"
        f" (median), {durations[-1]} ms (longest)"
    )
    print(f"memory, not files   {memory.anonymous / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
