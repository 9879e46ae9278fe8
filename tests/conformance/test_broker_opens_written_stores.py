"""A real broker opens the stores that jobs wrote, and its dump of them is ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from oracle import oracle_dump, oracle_open
from store_workload import SMALL, broker_settings, run_workload

from storage.offline import dump

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="no Spark: make setup-spark"),
]
KINDS = {
    "topic", "consumerOffsets", "delayOffsets", "groups", "queue", "message", "gap", "unqueued",
    "commitlog", "index",
}  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pipeline import build_session

    session = build_session("local[2]", "penstock tests", {"spark.log.level": "ERROR"})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores of the same topics that took turns."""
    root = tmp_path_factory.mktemp("pair")
    for turn in range(2):
        for number, name in enumerate(("first", "second")):
            run_workload(root / name, config=SMALL, rounds=40, seed=10 * turn + number)
    return root / "first", root / "second"


def merged(spark: Any, pair: tuple[Path, Path], target: Path) -> list[Path]:
    from pipeline.jobs.merge import merge

    merge(spark, pair, target, piece_bytes=1 << 14)
    return [target]


def parts(spark: Any, pair: tuple[Path, Path], target: Path) -> list[Path]:
    from pipeline.jobs.split import split

    split(spark, pair[0], target, topics=["mine=orders"], rest=True, piece_bytes=1 << 14)
    return [target / "mine", target / "rest"]


def compacted(spark: Any, pair: tuple[Path, Path], target: Path) -> list[Path]:
    from pipeline.jobs.compact.job import compact

    compact(spark, pair[1], target, piece_bytes=1 << 14)
    return [target]


def replayed(spark: Any, pair: tuple[Path, Path], target: Path) -> list[Path]:
    from pipeline.jobs.replay import replay

    replay(spark, pair[1], "orders", target=target, to_topic="again", piece_bytes=1 << 14)
    return [target]


@pytest.mark.parametrize(
    "job",
    [
        merged,
        pytest.param(parts, marks=pytest.mark.slow),
        compacted,
        pytest.param(replayed, marks=pytest.mark.slow),
    ],
)
def test_a_broker_opens_what_a_job_wrote(
    spark: Any,
    tmp_path: Path,
    pair: tuple[Path, Path],
    job: Callable[[Any, tuple[Path, Path], Path], list[Path]],
) -> None:
    """It recovers every record, serves each, finds each by its unique id, and appends to the store."""
    settings = broker_settings(dict(SMALL))
    for store in job(spark, pair, tmp_path / "new"):
        ours = list(dump(store, {"store": settings}))
        theirs = oracle_dump(store, settings=settings)
        known = {line["topic"] for line in ours if line["type"] == "topic"}
        assert ours == [
            line
            for line in theirs
            if line["type"] in KINDS and (line["type"] != "topic" or line["topic"] in known)
        ]
        assert any(line["type"] == "index" for line in ours)
        opened = oracle_open(store, settings=settings)
        assert opened.good, (opened.report, opened.stderr[-500:])
        assert opened.report["records"] == sum(line["type"] == "message" for line in ours)
        assert opened.report["unserved"] == 0
        assert opened.report["uniqueIdsFound"] == opened.report["uniqueIdsAsked"]
