"""Jobs of the Spark pipeline beside a bare walk: ``python -m bench.spark_jobs``.

The store is that of ``bench.spark_read``, made where it is not there, read once so that it is in the page
cache. Every job runs ``--rounds`` times after one unmeasured run; the median counts. The control is the
scan kernel walking the same log in this process on one core.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.spark_read import MIB, bare_walk, make_store, median_seconds
from pipeline import audit, build_session, compact, export, merge, rebuild
from storage.view.store_view import StoreView


def main() -> None:
    """Measure and print one line each."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--store", type=Path, default=Path(".bench-spark"))
    arguments.add_argument("--gib", type=float, default=1.0)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    if not given.store.exists():
        print(f"making a store of {given.gib} GiB in {given.store}")
        make_store(given.store, int(given.gib * (1 << 30)))
    store = StoreView.open(given.store)
    log_mib = (store.bounds.end_offset - store.bounds.min_offset) / MIB
    spark = build_session("local[2]", "penstock bench", {"spark.log.level": "ERROR"})
    target = given.store.with_name(f"{given.store.name}-made")

    def into_new_directory(run: Callable[[], Any]) -> Callable[[], Any]:
        def prepared() -> None:
            shutil.rmtree(target, ignore_errors=True)
            run()

        return prepared

    measures: dict[str, tuple[Callable[[], Any], int]] = {
        "control: scan kernel, 1 core": (lambda: bare_walk(store), 0),
        "audit": (lambda: audit(spark, given.store), 1024),
        "rebuild of consume queues": (
            into_new_directory(lambda: rebuild(spark, given.store, target, what="queues")), 700,
        ),
        "rebuild of index files": (
            into_new_directory(lambda: rebuild(spark, given.store, target, what="index")), 0,
        ),
        "export to Parquet": (into_new_directory(lambda: export(spark, given.store, target)), 0),
        "export to Parquet without bodies": (
            into_new_directory(lambda: export(spark, given.store, target, body=False)), 0,
        ),
        "merge, of one store": (into_new_directory(lambda: merge(spark, [given.store], target)), 0),
        "compact": (into_new_directory(lambda: compact(spark, given.store, target)), 0),
        "compact to Parquet": (
            into_new_directory(lambda: compact(spark, given.store, target, format="parquet")), 0,
        ),
    }  # fmt: skip
    for measure, (run, wanted) in measures.items():
        seconds, _ = median_seconds(run, given.rounds)
        against = f"wanted {wanted}" if wanted else ""
        print(f"{measure:34} {seconds:7.2f} s {log_mib / seconds:8.0f} MiB/s of log  {against}")
    shutil.rmtree(target, ignore_errors=True)


if __name__ == "__main__":
    main()
