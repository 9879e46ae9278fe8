"""Reads of the Spark pipeline beside a bare walk: ``python -m bench.spark_read``.

A store of ``--gib`` GiB with 8 topics of very different sizes is made under ``--store`` (kept for the
next run), read once so that it is in the page cache, and the measures are run in turn, ``--rounds`` times
after one that does not count; the median counts. There are two controls: the scan kernel walking the same log
in this process on one core, and Spark taking batches that are made already.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.resident import PeakMemory, cached_bytes, forget
from bench.spark_pipe import SameBatches
from pipeline import build_session, read_messages
from storage.format.record import encode_for_batch
from storage.store import MessageStore
from storage.view.log.walk import RecordRun, walk_range
from storage.view.store_view import StoreView

MIB: Final = 1 << 20
SHARES: Final = (400, 250, 150, 100, 50, 25, 15, 10)  # of 1000 batches; the last is 1 %
QUEUES: Final = 4
BATCH: Final = 256
HOST: Final = "127.0.0.1:10911"
SMALL: Final = f"topic{len(SHARES) - 1}"
ONE_TOPIC: Final = "one topic of 1 %, all columns, noop"


def batches_of(rng: random.Random) -> dict[tuple[int, int], bytes]:
    """Return a batch for each topic and queue, its records of about 1.1 KiB, each with tag, key and unique id."""
    return {
        (topic, queue_id): b"".join(
            encode_for_batch(
                f"topic{topic}", queue_id, rng.randbytes(900),
                f"UNIQ_KEY\x01{rng.randbytes(16).hex()}\x02KEYS\x01k{number}\x02"
                f"TAGS\x01tag{number % 5}\x02".encode(),
                0, 0, 1_700_000_000_000, HOST,
            )
            for number in range(BATCH)
        )
        for topic in range(len(SHARES))
        for queue_id in range(QUEUES)
    }  # fmt: skip


def make_store(directory: Path, size: int) -> None:
    """Fill a store."""
    rng = random.Random(7)
    with MessageStore.open(directory) as store:
        for topic in range(len(SHARES)):
            store.create_topic(f"topic{topic}", QUEUES)
        batches = batches_of(rng)
        written = 0
        while written < size:
            topic = rng.choices(range(len(SHARES)), SHARES)[0]
            batch = batches[topic, rng.randrange(QUEUES)]
            store.put_batch(batch)
            written += len(batch)


def bare_walk(store: StoreView) -> None:
    """The control: every record scanned with every checksum, nothing made of it."""
    for file in store.log.entries:
        data = store.log.map(file)
        end = min(file.end_offset, store.bounds.end_offset)
        begin = max(file.start_offset, store.bounds.min_offset)
        for step in walk_range(data, file.start_offset, begin, end):
            assert isinstance(step, RecordRun)


def cached_in_memory(directory: Path) -> None:
    """Read every file below a directory, so that it is in the page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(4 * MIB):
                    pass


def median_seconds(run: Callable[[], Any], rounds: int) -> tuple[float, list[float]]:
    """Run once unmeasured, then ``rounds`` times."""
    seconds = alternated_seconds({"": run}, rounds)[""]
    return statistics.median(seconds), seconds


def alternated_seconds(
    measures: dict[str, Callable[[], Any]], rounds: int
) -> dict[str, list[float]]:
    """Run all in turn, ``rounds`` times after one that does not count: Java compiles in that."""
    seconds: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, run in measures.items():
            began = time.perf_counter()
            run()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def measures_of(
    spark: Any, store: StoreView, memory: PeakMemory
) -> dict[str, tuple[Callable[[], Any], int]]:
    """Return each measure by name, with the MiB/s of log that it should reach, 0 for none."""
    name = str(store.paths.root.resolve())

    def drain(df: Any) -> None:
        df.write.format("noop").mode("overwrite").save()

    def columns(*names: str) -> Any:
        return read_messages(spark, name, columns=names)

    def control() -> None:
        memory.paused = True  # it maps the log into this process, which no read does
        bare_walk(store)
        memory.paused = False

    return {
        "control: scan kernel, 1 core": (control, 0),
        "control: ready batches, all columns, noop": (
            lambda: drain(spark.read.format("same-batches").load(name)), 0,
        ),
        "all columns, noop sink": (lambda: drain(spark.read.format("penstock").load(name)), 500),
        "header-only count": (lambda: columns("queueId").count(), 1024),
        "header-only group by topic, queueId": (
            lambda: columns("topic", "queueId").groupBy("topic", "queueId").count().collect(), 1024,
        ),
        ONE_TOPIC: (
            lambda: drain(spark.read.format("penstock").option("subscribe", SMALL).load(name)), 0,
        ),
    }  # fmt: skip


def rates(
    seconds: dict[str, list[float]], wanted: dict[str, int], log_mib: float
) -> list[dict[str, Any]]:
    """Print each measure's rate and return it with its rounds."""
    results = []
    for measure, rounds in seconds.items():
        median = statistics.median(rounds)
        rate = log_mib / median
        against = f"wanted {wanted[measure]}" if wanted[measure] else ""
        print(f"{measure:42} {median:7.2f} s {rate:8.0f} MiB/s of log  {against}", flush=True)
        results.append(
            {"measure": measure, "mib_per_s": rate, "wanted": wanted[measure], "rounds": rounds}
        )
    return results


def share_read(store: StoreView, read: Callable[[], Any]) -> float:
    """Return which share of a log that is not cached a read brings into the page cache."""
    log = [file.path for file in store.log.entries]
    forget(log)
    before = cached_bytes(log)
    read()
    size = store.bounds.end_offset - store.bounds.min_offset
    return (cached_bytes(log) - before) / size


def main() -> None:
    """Measure and print one line each; ``--json`` keeps the rounds."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--store", type=Path, default=Path(".bench-spark"))
    arguments.add_argument("--gib", type=float, default=4.0)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="measures whose names contain this")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    if not given.store.exists():
        print(f"making a store of {given.gib} GiB in {given.store}")
        make_store(given.store, int(given.gib * (1 << 30)))
    store = StoreView.open(given.store)
    log_mib = (store.bounds.end_offset - store.bounds.min_offset) / MIB
    spark = build_session("local[2]", "penstock bench", {"spark.log.level": "ERROR"})
    spark.dataSource.register(SameBatches)
    memory = PeakMemory()
    measures = measures_of(spark, store, memory)
    chosen = {name: run for name, (run, _) in measures.items() if given.only in name}
    cached_in_memory(given.store)
    with memory:
        seconds = alternated_seconds(chosen, given.rounds)
    results = rates(seconds, {name: wanted for name, (_, wanted) in measures.items()}, log_mib)
    print(
        f"driver and workers: {memory.total / MIB:.0f} MiB resident at most, {memory.anonymous / MIB:.0f}"
        " without mapped files; wanted under 3072"
    )
    share = share_read(store, measures[ONE_TOPIC][0])
    print(
        f"one topic of 1 % reads {100 * share:.1f} % of a log that is not cached; wanted 5 at most"
    )
    if given.json:
        document = {
            "log_mib": log_mib, "results": results, "share_of_log": share,
            "resident_bytes": memory.total, "resident_anonymous_bytes": memory.anonymous,
        }  # fmt: skip
        given.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
