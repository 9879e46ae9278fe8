"""A real broker opens stores whose queues and index a job has made again, in place."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import golden_copy, golden_spec
from local_spark import LocalSpark
from oracle import oracle_dump, oracle_open
from store_workload import SMALL, broker_settings, run_workload

from pipeline import rebuild
from storage.offline import dump

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


def test_a_broker_opens_a_store_rebuilt_in_place(tmp_path: Path) -> None:
    """Ours and its own, with queues and index lost: everything is served, every key is found."""
    pytest.importorskip("pyspark")
    spark: Any = LocalSpark()
    store = tmp_path / "store"
    config = SMALL | {"flush_mode": "async"}
    acked = run_workload(store, config=config, rounds=60)
    before = [line for line in dump(store) if line["type"] in ("queue", "message")]
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    rebuild(spark, store, in_place=True)
    settings = broker_settings(config)
    opened = oracle_open(store, settings=settings)
    assert opened.good, (opened.report, opened.stderr[-500:])
    assert opened.report["records"] == len(acked)
    assert opened.report["unserved"] == 0
    assert opened.report["uniqueIdsFound"] == opened.report["uniqueIdsAsked"]
    theirs = oracle_dump(store, settings=settings)
    assert [line for line in theirs if line["type"] in ("queue", "message")] == before

    spec = golden_spec("features")["store"]
    copy = golden_copy("features", tmp_path)
    wanted = oracle_dump(copy, settings=spec)
    rebuild(spark, copy, in_place=True)
    assert without_names(oracle_dump(copy, settings=spec)) == without_names(wanted)


def without_names(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of a dump without the names of index files, which are the times they were made at."""

    def is_name(key: str, value: Any) -> bool:
        return (key == "name" and str(value).isdigit()) or str(value).startswith("index/")

    return [
        {key: value for key, value in line.items() if not is_name(key, value)} for line in lines
    ]
