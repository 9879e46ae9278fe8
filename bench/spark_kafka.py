"""Our source beside Spark's Kafka source on the same messages: ``python -m bench.spark_kafka``.

The store of ``bench.spark_read`` is copied once, by Spark, into a Kafka 4 broker: same topics,
partitions, keys, values and headers. Then both are read in turn in one session, ``--rounds`` times after
one unmeasured round; the median counts. Rates are of our log's bytes for both. Every column of each is
read: ours has twenty, Kafka's eight with its headers; ``--plain`` compares Kafka's seven columns instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.kafka_broker import connector_jars, kafka_broker
from bench.spark_read import MIB, SHARES, cached_in_memory, make_store
from pipeline import build_session
from storage.view.store_view import StoreView

TOPICS: Final = ",".join(f"topic{number}" for number in range(len(SHARES)))
LOADED: Final = "loaded"
WANTED: Final = 1.5


def load(spark: Any, store: Path, address: str) -> None:
    """Copy every message of the store into the broker."""
    df = spark.read.format("penstock").options(kafkaColumns="true", includeHeaders="true")
    df = df.load(str(store)).select("topic", "partition", "key", "value", "headers")
    options = {
        "kafka.bootstrap.servers": address, "kafka.linger.ms": "20", "kafka.batch.size": "262144",
        "includeHeaders": "true",
    }  # fmt: skip
    df.write.format("kafka").options(**options).save()


def drain(df: Any) -> None:
    """Read every row and every column and keep nothing."""
    df.write.format("noop").mode("overwrite").save()


def main() -> None:
    """Measure and print; exit 1 if ours is not so much faster as it should be."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--store", type=Path, default=Path(".bench-spark"))
    arguments.add_argument("--gib", type=float, default=4.0)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--plain", action="store_true", help="Kafka's columns without headers")
    arguments.add_argument("--load-only", action="store_true")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    if not given.store.exists():
        make_store(given.store, int(given.gib * (1 << 30)))
    store, name = StoreView.open(given.store), str(given.store.resolve())
    log_mib = (store.bounds.end_offset - store.bounds.min_offset) / MIB
    data = given.store.with_name(given.store.name + "-kafka").resolve()
    jars = connector_jars()
    with kafka_broker(data) as address:
        spark = build_session(
            "local[2]", "penstock bench", {"spark.log.level": "ERROR", "spark.jars": jars}
        )
        if not (data / LOADED).exists():
            began = time.perf_counter()
            load(spark, given.store, address)
            (data / LOADED).touch()
            print(f"copied {log_mib:.0f} MiB of log in {time.perf_counter() - began:.0f} s")
        if given.load_only:
            return

        def ours() -> Any:
            return spark.read.format("penstock").options(kafkaColumns=str(given.plain)).load(name)

        def theirs() -> Any:
            options = {
                "kafka.bootstrap.servers": address, "subscribe": TOPICS,
                "includeHeaders": str(not given.plain).lower(),
            }  # fmt: skip
            return spark.read.format("kafka").options(**options).load()

        sources: dict[str, Callable[[], Any]] = {"penstock": ours, "kafka": theirs}
        seconds: dict[str, list[float]] = {source: [] for source in sources}
        for directory in (given.store, data / "logs"):
            cached_in_memory(directory)
        counts = {source: frame().count() for source, frame in sources.items()}
        if len(set(counts.values())) != 1:
            raise SystemExit(f"not the same messages: {counts}")
        for number in range(given.rounds + 1):
            for source, frame in sources.items():
                began = time.perf_counter()
                drain(frame())
                if number:
                    seconds[source].append(time.perf_counter() - began)
        spark.stop()
    medians = {source: statistics.median(each) for source, each in seconds.items()}
    for source, median in medians.items():
        spread = " ".join(f"{each:.1f}" for each in seconds[source])
        print(f"{source:10} {median:7.2f} s {log_mib / median:8.0f} MiB/s of log  ({spread})")
    ratio = medians["kafka"] / medians["penstock"]
    print(f"{counts['kafka']} messages; ours is {ratio:.2f} x theirs, wanted {WANTED}")
    if given.json:
        given.json.write_text(json.dumps({"log_mib": log_mib, "seconds": seconds, "ratio": ratio}))
    raise SystemExit(ratio < WANTED)


if __name__ == "__main__":
    main()
