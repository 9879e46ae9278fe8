"""A broker opens a store whose old files we deleted, and we delete those of a store that a broker cleaned."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ask.answers import ask
from golden import golden_copy, golden_spec
from oracle import oracle_ask, oracle_dump, oracle_open
from store_workload import SMALL, broker_settings, run_workload

from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.files.filesystem import FileSystem
from storage.indexer import StoreIndexer
from storage.offline import dump
from storage.writer import StoreWriter

Line = dict[str, Any]
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


def clean(store: Path, config: StoreConfig, *, keep_files: int) -> int:
    """Delete all but so many of the log's newest files; return where the log begins then."""
    files = sorted((store / "commitlog").iterdir())
    old = time.time() - 7_200
    for path in files[:-keep_files]:
        os.utime(path, (old, old))
    with StoreWriter.open(store, config) as writer:
        indexer = StoreIndexer.open(
            store, writer.config, filesystem=FileSystem(), clock=SystemClock(), unclean=False
        )
        with indexer:
            while indexer.step():
                pass
            indexer.sync()
            assert writer.retention.delete_expired(3_600_000)
            begin = writer.status().min_commit_offset
    assert begin == int(files[-keep_files].name)
    return begin


def messages(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["type"] == "message"]


def test_a_broker_serves_what_is_left_of_a_store_that_we_cleaned(tmp_path: Path) -> None:
    """Its dump is ours, its minimum offsets too, and it goes on with the store."""
    store = tmp_path / "store"
    run_workload(store, config=SMALL, rounds=120)
    settings = broker_settings(SMALL)
    before = messages(list(dump(store, {"store": settings})))

    begin = clean(store, StoreConfig(**SMALL), keep_files=2)

    ours = list(dump(store, {"store": settings}))
    theirs = oracle_dump(store, settings=settings)
    left = [line for line in before if line["commitLogOffset"] >= begin]
    assert 0 < len(left) < len(before)
    assert messages(ours) == messages(theirs) == left
    queues = [line for line in ours if line["type"] == "queue"]
    assert queues == [line for line in theirs if line["type"] == "queue" and line in queues]
    questions: list[Line] = []
    for line in queues:
        where = {"topic": line["topic"], "queue": line["queueId"]}
        questions += [{"kind": kind, **where} for kind in ("minOffset", "maxOffset")]
    assert list(ask(store, questions, {"store": settings})) == oracle_ask(
        store, questions, settings=settings
    )
    opened = oracle_open(store, settings=settings)
    assert opened.good, (opened.report, opened.stderr[-500:])
    assert opened.report["records"] == len(left)


def test_we_clean_a_store_that_a_broker_cleaned_before(tmp_path: Path) -> None:
    """And a broker opens it again."""
    spec = golden_spec("cleaned")["store"]
    store = golden_copy("cleaned", tmp_path)
    before = messages(list(dump(store, {"store": spec})))

    begin = clean(store, StoreConfig(), keep_files=1)

    left = [line for line in before if line["commitLogOffset"] >= begin]
    assert messages(list(dump(store, {"store": spec}))) == left
    opened = oracle_open(store, settings=spec)
    assert opened.good, (opened.report, opened.stderr[-500:])
    assert opened.report["records"] == len(left)
