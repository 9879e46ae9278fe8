"""A read through the reader service beside the same read of files: ``python -m bench.spark_remote``.

The store is that of ``bench.spark_read`` (made if it is not there). The reader is a process of its own on
this machine, so it shares the two cores with Spark: what a network between two machines adds is
not in the figures, nor what a second machine's cores would save. The controls are the pull alone, in
one process that throws the records away, and the same read of the files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import drivers
from bench.spark_read import MIB, SHARES, cached_in_memory, make_store, median_seconds
from pipeline import build_session, read_messages
from pipeline.source.remote import Endpoint
from storage.view.store_view import StoreView


def pull_alone(address: str) -> int:
    """Pull every queue and return the bytes of records that came."""
    with Endpoint(address, 10.0) as endpoint:
        return sum(
            len(pulled.records)
            for queue in endpoint.list_queues().queues
            for pulled in endpoint.pull(queue.topic, queue.queue_id, queue.begin, queue.end)
        )


def main() -> None:
    """Measure and print one line each; ``--json`` keeps the rounds."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--store", type=Path, default=Path(".bench-spark"))
    arguments.add_argument("--gib", type=float, default=1.0)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    if not given.store.exists():
        print(f"making a store of {given.gib} GiB in {given.store}")
        make_store(given.store, int(given.gib * (1 << 30)))
    cached_in_memory(given.store)
    name, store = str(given.store.resolve()), StoreView.open(given.store)
    log_mib = (store.bounds.end_offset - store.bounds.min_offset) / MIB
    spark = build_session("local[2]", "penstock bench", {"spark.log.level": "ERROR"})
    every = ",".join(f"topic{number}" for number in range(len(SHARES)))

    def noop(**options: str) -> Callable[[], Any]:
        df = spark.read.format("penstock").options(subscribe=every, **options)
        return lambda: df.load().write.format("noop").mode("overwrite").save()

    def count(**options: str) -> Callable[[], Any]:
        return lambda: read_messages(spark, columns=["queueId"], **options).count()

    results = []
    with drivers.service("reader", given.store) as (address, _):
        measures: dict[str, Callable[[], Any]] = {
            "control: pull alone, 1 process": lambda: pull_alone(address),
            "files: all columns, noop sink": noop(store=name),
            "reader: all columns, noop sink": noop(endpoint=address),
            "files: header-only count": count(store=name),
            "reader: header-only count": count(endpoint=address),
            "reader: table queues": lambda: spark.read.format("penstock")
            .options(endpoint=address, table="queues").load().count(),
        }  # fmt: skip
        for measure, run in measures.items():
            seconds, rounds = median_seconds(run, given.rounds)
            rate = log_mib / seconds
            print(f"{measure:36} {seconds:7.2f} s {rate:8.0f} MiB/s of log", flush=True)
            results.append({"measure": measure, "mib_per_s": rate, "rounds": rounds})
    if given.json:
        given.json.write_text(json.dumps({"log_mib": log_mib, "results": results}, indent=1))


if __name__ == "__main__":
    main()
